"""Programs of others that tests run. What is not there is installed, where that is allowed."""

import os
import shutil
import subprocess


def found(*names: str) -> str | None:
    """The path of the first of these programs that there is."""
    return next((path for name in names if (path := shutil.which(name))), None)


def found_or_installed(package: str, *names: str) -> str | None:
    """The same, after Debian's package was installed where there is none and we may."""
    if not found(*names) and os.geteuid() == 0 and shutil.which("apt-get"):
        for action in (["update"], ["install", "-y", package]):
            subprocess.run(["apt-get", "-q", *action], check=False, capture_output=True)
    return found(*names)
