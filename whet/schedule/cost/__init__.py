"""The analytic model's parts that families share: rates, work, arrival of data."""
