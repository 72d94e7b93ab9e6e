import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def hardware(tmp_path_factory):
    """Plans of least time are made for the machine of tests/data: nothing is measured, and no home is written to."""
    home = tmp_path_factory.mktemp("config")
    (home / "redblue").mkdir()
    shutil.copy(Path(__file__).parents[1] / "data/hardware.json", home / "redblue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home))
        yield
