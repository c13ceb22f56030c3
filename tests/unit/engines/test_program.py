"""Declarations of engine programs."""

import sys

import pytest

from engines.program import child_variables, load_program, shipped
from noidle.errors import ConfigError


def declare(folder, text):
    path = folder / "engine.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["echo", "tensor"])
def test_the_shipped_engines_are_declared(name):
    program = load_program(shipped(name))
    assert program.name == name
    assert program.command[0] == sys.executable
    assert (program.folder / "engines").is_dir()


def test_places_in_a_command_are_filled_and_the_folder_is_beside_the_declaration(tmp_path):
    (tmp_path / "bin").mkdir()
    path = declare(
        tmp_path,
        'name = "x"\ncommand = ["{here}/run", "--py={python}"]\nfolder = "bin"\n'
        '[env]\nDEPTH = "3"\n',
    )
    program = load_program(path)
    assert program.command == (f"{tmp_path}/run", f"--py={sys.executable}")
    assert program.folder == tmp_path / "bin"
    assert program.env == {"DEPTH": "3"}


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ('command = ["x"]', "name"),
        ('name = "x"', "command"),
        ('name = "x"\ncommand = []', "command"),
        ('name = "x"\ncommand = "x y"', "command"),
        ('name = "x"\ncommand = ["x", 3]', "command"),
        ('name = "x"\ncommand = ["x"]\narguments = []', "arguments"),
        ('name = "x"\ncommand = ["x"]\nfolder = "missing"', "folder"),
        ('name = "x"\ncommand = ["x"]\nenv = {A = 1}', "env"),
        ("name = ", "file"),
    ],
)
def test_a_wrong_declaration_names_file_field_and_what_is_allowed(tmp_path, text, variable):
    path = declare(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load_program(path)
    assert refused.value.variable == variable
    assert str(path) in str(refused.value)
    assert refused.value.allowed


def test_a_missing_declaration_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nothing"):
        load_program(tmp_path / "nothing.toml")


def test_a_child_gets_no_setting_of_the_cluster_but_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("NOIDLE_URL", "redis://:secret@host")
    monkeypatch.setenv("ECHO_STEP_S", "1")
    path = declare(tmp_path, 'name = "x"\ncommand = ["x"]\nenv = {ECHO_STEP_S = "2"}')
    variables = child_variables(load_program(path), {"NOIDLE_SLOTS": "3"})
    assert "NOIDLE_URL" not in variables
    assert variables["NOIDLE_SLOTS"] == "3"
    assert variables["ECHO_STEP_S"] == "2"
    assert variables["PATH"]
