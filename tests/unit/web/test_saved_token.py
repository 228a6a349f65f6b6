"""The token of a folder, which survives restarts."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onthedot.web.saved_token import saved_token


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


def files(state: dict[str, str]) -> list[Path]:
    return sorted(Path(state["XDG_STATE_HOME"], "onthedot").iterdir())


def test_token_of_a_folder_stays_the_same_and_only_its_owner_reads_it(tmp_path: Path, state: dict[str, str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        ((token, place),) = set(pool.map(lambda _: saved_token(tmp_path, state), range(32)))
    (file,) = files(state)
    assert place == file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert saved_token(tmp_path, state).text == token
    assert len(token) == 43
    assert token not in str(file)


def test_folders_have_different_tokens(tmp_path: Path, state: dict[str, str]) -> None:
    assert saved_token(tmp_path, state).text != saved_token(tmp_path / "other", state).text
    assert len(files(state)) == 2


@pytest.mark.parametrize("damage", ["open to others", "short", "no text"])
def test_token_that_is_not_safe_is_replaced(tmp_path: Path, state: dict[str, str], damage: str) -> None:
    before = saved_token(tmp_path, state).text
    (file,) = files(state)
    if damage == "open to others":
        file.chmod(0o644)
    else:
        file.write_bytes(b"abc" if damage == "short" else b"\xff" * 43)
    after = saved_token(tmp_path, state).text
    assert after != before
    assert saved_token(tmp_path, state).text == after
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_token_is_new_each_time_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    first = saved_token(tmp_path, state)
    assert first.file is None
    assert first.text != saved_token(tmp_path, state).text
