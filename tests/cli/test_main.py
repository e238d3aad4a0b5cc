"""The command line as a user meets it: help, exit codes, and what goes to which stream."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bimetal.cli._console import print_error, printable
from bimetal.cli.main import command_names, main


def test_every_file_of_the_folder_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert {"doctor", "domains", "methods", "new", "schema"} <= set(command_names())
    assert all(name in shown for name in command_names())


def test_every_command_has_help_with_an_example_and_the_json_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for name in command_names():
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert "Example: bimetal" in shown, name
        assert "--json" in shown, name


def test_help_needs_no_accelerator_stack() -> None:
    program = (
        "import sys; from bimetal.cli.main import main; main(['--help']); "
        "sys.exit(str(sorted({'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules))))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr.strip() == "[]"


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert "Usage: bimetal" in "".join(capsys.readouterr())


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("bimetal 0.")


@pytest.mark.parametrize("arguments", [["nosuch"], ["methods", "--nosuch"], ["new", "method"]])
def test_bad_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().out == ""


def test_a_mistake_is_one_message_on_standard_error_and_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "lufy", "--json"]) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err == "bimetal: unknown method 'lufy'; did you mean 'luffy'?\n"


def test_a_message_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("a\x1b[2Jb\u202e\x9bc\nd\te")
    assert capsys.readouterr().err == "bimetal: a?[2Jb??c\nd\te\n"


def test_ordinary_text_is_printable_as_it_is() -> None:
    assert printable("caf\u00e9 \u4e2d \u221a 2\n") == "caf\u00e9 \u4e2d \u221a 2\n"


def test_schema_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["title"] == "Recipe"
    assert "stage" in schema["properties"]


def test_the_schema_of_an_entry_holds_its_name_and_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "domain", "lab_arithmetic"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["name"] == {"const": "lab_arithmetic"}
    assert schema["properties"]["most_digits"]["minimum"] == 1
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["schema", "metod"], "unknown kind of entry 'metod'; did you mean 'method'?"),
        (
            ["schema", "method"],
            "schema method: needs the name of a method, as in `bimetal schema method NAME`",
        ),
    ],
)
def test_schema_says_what_it_needs(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"bimetal: {message}\n"
