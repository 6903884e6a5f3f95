"""The sketches of lanes along a spatial axis, whole groups, or across what is reduced."""
