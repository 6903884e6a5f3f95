"""The wheel's tag: pure Python, but native code is generated for, and run on, Linux alone.

All else is in pyproject.toml.
"""

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel


class LinuxWheel(bdist_wheel):
    """A wheel for any Python 3 on the kind of machine that it is built on."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False  # installed where packages with native code are

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"bdist_wheel": LinuxWheel})
