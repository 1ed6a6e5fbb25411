# SPDX-License-Identifier: GPL-3.0-or-later
"""What ansible-test runs to bring pip into a fresh virtual environment, in place of the script that it would download.

tools/sanity puts it where ansible-test looks first. The pip is the one that this Python brings along (ensurepip), and the
first thing that it installs is the version that ansible-test asks for. It runs on every Python that ansible-test finds.
"""

import ensurepip
import pathlib
import runpy
import sys

wheels = (pathlib.Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
sys.path.insert(0, str(max(wheels)))
sys.argv = ["pip", "install"] + [word for word in sys.argv[1:] if word not in ("--no-setuptools", "--no-wheel")]
runpy.run_module("pip", run_name="__main__", alter_sys=True)
