"""Sources of a recipe: files, folders, `datasets`; bad rows; several sources together."""

# long: tests mirror the modules, one file each, and this module meets every kind of file
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bimetal.config.data import DataOptions, SourceOptions
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Stream
from bimetal.data.corpus import Corpus, write_set_aside
from bimetal.data.records import load_data, load_source

ROWS: list[dict[str, object]] = [
    {"question": "1+1?", "answer": "#### 2"},
    {"question": "2+2?", "answer": "#### 4"},
    {"question": "3+3?", "answer": "#### 6"},
]


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def load(base: Path, path: str, **options: object) -> Corpus:
    return load_source(SourceOptions(path=path, **options), base=base)


def references(corpus: Corpus) -> list[object]:
    return [prompt.reference for prompt in corpus.prompts]


def test_paths_start_at_the_folder_of_the_recipe(tmp_path: Path):
    write(tmp_path / "data" / "a.jsonl", ROWS)
    (tmp_path / "recipes").mkdir()
    corpus = load(tmp_path / "recipes", "../data/a.jsonl")
    assert references(corpus) == ["2", "4", "6"]
    assert str(corpus.places[corpus.prompts[2].id]) == "../data/a.jsonl line 3"
    assert references(load(tmp_path / "recipes", str(tmp_path / "data" / "a.jsonl"))) == ["2", "4", "6"]


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path: Path):
    write(tmp_path / "data" / "gsm8k.jsonl", ROWS)
    with pytest.raises(
        DataError, match=r"data/gsm8k\.json: no such file or folder; did you mean 'gsm8k\.jsonl'\?"
    ):
        load(tmp_path, "data/gsm8k.json")
    with pytest.raises(DataError, match=r"zzz\.csv: no such file or folder; the folder holds: data "):
        load(tmp_path, "zzz.csv")
    with pytest.raises(DataError, match=r"the folder 'dat' does not exist either"):
        load(tmp_path, "dat/gsm8k.jsonl")


def test_an_empty_data_set_is_an_error(tmp_path: Path):
    write(tmp_path / "a.jsonl", [])
    with pytest.raises(DataError, match=r"a\.jsonl: holds no rows\. Check that this is the right file"):
        load(tmp_path, "a.jsonl")


def test_bad_rows_stop_with_the_first_five_and_the_count(tmp_path: Path):
    write(tmp_path / "a.jsonl", ROWS + [{"question": f"{n}?", "answer": f"{n}"} for n in range(7)])
    with pytest.raises(DataError) as caught:
        load(tmp_path, "a.jsonl")
    lines = str(caught.value).splitlines()
    assert lines[0] == "7 rows cannot be used:"
    assert lines[1] == (
        "  a.jsonl line 4: field 'answer': must be a solution with exactly one '####' (it has 0); found \"0\""
    )
    assert lines[2] == '    the row: {"question": "0?", "answer": "0"}'
    assert [line.split(":")[0] for line in lines[1:11:2]] == [f"  a.jsonl line {n}" for n in range(4, 9)]
    assert lines[11] == "  and 2 more"
    assert 'data.on_bad_rows = "set_aside"' in lines[12]


def test_bad_rows_are_set_aside_in_a_file_with_reasons(tmp_path: Path):
    (tmp_path / "a.jsonl").write_bytes(b'{"question": "a", "answer": "#### 1"}\n{\n{"question": "b"}\n')
    corpus = load_source(SourceOptions(path="a.jsonl"), base=tmp_path, on_bad_rows="set_aside")
    assert references(corpus) == ["1"]
    path = write_set_aside(corpus, tmp_path / "run")
    first, second = (json.loads(line) for line in path.read_text("ascii").splitlines())
    assert (first["file"], first["unit"], first["row"], first["excerpt"]) == ("a.jsonl", "line", 2, '"{"')
    assert first["reason"].startswith("not JSON: ")
    assert (second["row"], second["reason"]) == (
        3,
        "field 'answer': column 'answer' is missing or null in this row",
    )


def test_nothing_but_bad_rows_stops_even_where_they_may_be_set_aside(tmp_path: Path):
    for rows in (b"{\n", b'{"question": "a", "answer": "####"}\n'):
        (tmp_path / "a.jsonl").write_bytes(rows)
        options = SourceOptions(path="a.jsonl", format="gsm8k")
        with pytest.raises(DataError, match=r"1 row cannot be used:(.|\n)*No usable row is left"):
            load_source(options, base=tmp_path, on_bad_rows="set_aside")


def test_duplicate_ids_name_both_rows(tmp_path: Path):
    write(
        tmp_path / "a.jsonl",
        [{"id": "x", "prompt": "a"}, {"id": "y", "prompt": "b"}, {"id": "x", "prompt": "c"}],
    )
    with pytest.raises(DataError) as caught:
        load(tmp_path, "a.jsonl")
    assert (
        "a.jsonl line 3: field 'id': the id 'x' already stands at a.jsonl line 1; ids must be unique"
        in str(caught.value)
    )
    corpus = load_source(SourceOptions(path="a.jsonl"), base=tmp_path, on_bad_rows="set_aside")
    assert [prompt.messages[0].content for prompt in corpus.prompts] == ["a", "b"]


def test_duplicate_ids_are_found_across_sources(tmp_path: Path):
    write(tmp_path / "a.jsonl", [{"id": 1, "prompt": "a"}])
    write(tmp_path / "b.jsonl", [{"id": 1, "prompt": "b"}])
    sources = (SourceOptions(path="a.jsonl"), SourceOptions(path="b.jsonl"))
    with pytest.raises(
        DataError, match=r"b\.jsonl line 1: field 'id': the id '1' already stands at a\.jsonl line 1"
    ):
        load_data(DataOptions(sources=sources), base=tmp_path)
    apart = (SourceOptions(path="a.jsonl", domain="p"), SourceOptions(path="b.jsonl", domain="q"))
    corpus = load_data(DataOptions(sources=apart), base=tmp_path)
    assert [prompt.id for prompt in corpus.prompts] == ["p/1", "q/1"]


def test_a_file_of_demonstrations_joins_the_prompts_of_another(tmp_path: Path):
    write(tmp_path / "a.jsonl", [{"prompt": "1+1?", "reference": "2"}, {"prompt": "2+2?", "reference": "4"}])
    write(tmp_path / "b.jsonl", [{"prompt": "1+1?", "completion": "two: 2"}])
    sources = (
        SourceOptions(path="a.jsonl", domain="m"),
        SourceOptions(path="b.jsonl", domain="m", author="Bo"),
    )
    corpus = load_data(DataOptions(sources=sources), base=tmp_path)
    assert references(corpus) == ["2", "4"]
    assert [(d.text, d.author) for d in corpus.demonstrations[corpus.prompts[0].id]] == [("two: 2", "Bo")]
    # In whichever order they stand, the reference and the demonstration meet.
    swapped = load_data(DataOptions(sources=sources[::-1]), base=tmp_path)
    assert references(swapped) == ["2", "4"]


def test_a_prompt_in_both_streams_is_refused(tmp_path: Path):
    write(tmp_path / "a.jsonl", [{"prompt": "1+1?", "reference": "2"}])
    write(tmp_path / "b.jsonl", [{"prompt": "1+1?", "completion": "2"}])
    sources = (SourceOptions(path="a.jsonl"), SourceOptions(path="b.jsonl", stream=Stream.DEMONSTRATIONS))
    with pytest.raises(DataError, match=r"already stands at a\.jsonl line 1, in the other stream"):
        load_data(DataOptions(sources=sources), base=tmp_path)


def test_contradicting_rows_are_refused(tmp_path: Path):
    write(tmp_path / "a.jsonl", [{"prompt": "x", "completion": "a", "reference": "1"}] * 2)
    assert len(load(tmp_path, "a.jsonl").prompts) == 1
    write(
        tmp_path / "a.jsonl",
        [
            {"prompt": "x", "completion": "a", "reference": "1"},
            {"prompt": "x", "completion": "a", "reference": "2"},
        ],
    )
    with pytest.raises(DataError, match=r"already stands at a\.jsonl line 1 with another reference"):
        load(tmp_path, "a.jsonl")
    write(
        tmp_path / "a.jsonl",
        [{"question": "x", "answer": "a #### 1"}, {"question": "x", "answer": "b #### 1"}],
    )
    with pytest.raises(DataError, match="give the rows ids of their own, or put all demonstrations"):
        load(tmp_path, "a.jsonl")


def test_the_second_stream_and_weights_reach_the_prompts(tmp_path: Path):
    write(tmp_path / "a.jsonl", ROWS)
    options = SourceOptions(path="a.jsonl", stream=Stream.DEMONSTRATIONS, weight=2.5, limit=2)
    corpus = load_source(options, base=tmp_path)
    assert [prompt.stream for prompt in corpus.prompts] == [Stream.DEMONSTRATIONS] * 2
    assert [corpus.weight_of(prompt.id) for prompt in corpus.prompts] == [2.5, 2.5]
    assert load(tmp_path, "a.jsonl").weight_of(corpus.prompts[0].id) == 1.0


def test_derived_ids_do_not_depend_on_what_the_recipe_adds(tmp_path: Path):
    write(tmp_path / "a.jsonl", ROWS)
    plain = load(tmp_path, "a.jsonl")
    dressed = load(tmp_path, "a.jsonl", system_prompt="Think.", instruction_suffix="\nEnd with ####.")
    assert [p.id for p in plain.prompts] == [p.id for p in dressed.prompts]
    # sha256 of '[["user", "1+1?"]]', first 24 hexadecimal characters: fixed for all time.
    assert plain.prompts[0].id == "d08a0ea40e586d06e99c0c7a"
    assert [(m.role, m.content) for m in dressed.prompts[0].messages] == [
        ("system", "Think."),
        ("user", "1+1?\nEnd with ####."),
    ]
    assert plain.fingerprint != dressed.fingerprint
    assert plain.fingerprint == load(tmp_path, "a.jsonl").fingerprint


def test_problems_are_told_apart_without_case_and_blanks(tmp_path: Path):
    write(
        tmp_path / "a.jsonl", [{"prompt": "What  is\n2?"}, {"prompt": "what is 2?"}, {"prompt": "what is 3?"}]
    )
    first, second, third = load(tmp_path, "a.jsonl").prompts
    assert first.problem == second.problem != third.problem
    assert first.id != second.id


def test_two_system_messages_are_refused(tmp_path: Path):
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    write(tmp_path / "a.jsonl", [{"messages": chat}])
    with pytest.raises(DataError, match="has a system message of its own, and the recipe sets system_prompt"):
        load(tmp_path, "a.jsonl", system_prompt="t")


def test_what_was_done_with_every_column_is_told(tmp_path: Path):
    rows = {
        "prompt": ["a", "b"],
        "messages": [None, None],
        "domain": ["x", "x"],
        "n": [1, None],
        "raw": [b"1", None],
    }
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    corpus = load(tmp_path, "a.parquet", domain="math")
    assert corpus.formats == (
        "a.parquet: 2 rows read as 'canonical'",
        "column 'prompt' -> prompt",
        "column 'domain': not used, the recipe says domain = 'math'",
        "column 'n' -> meta",
        "column 'raw' -> meta",
        "column 'raw': left out of meta in 1 rows, JSON cannot hold it",
    )
    assert [prompt.meta for prompt in corpus.prompts] == [{"n": 1}, {}]


def test_messages_in_a_table_are_json_text(tmp_path: Path):
    chat = json.dumps([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]).replace(
        '"', '""'
    )
    (tmp_path / "a.csv").write_text(f'messages,reference\n"{chat}",7\n', encoding="utf-8")
    corpus = load(tmp_path, "a.csv")
    assert [d.text for d in corpus.demonstrations[corpus.prompts[0].id]] == ["b"]
    (tmp_path / "a.csv").write_text("messages\n__import__('os')\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.csv line 2: field 'messages': must be a list of messages"):
        load(tmp_path, "a.csv")


def test_a_folder_of_one_kind_of_file_is_one_source(tmp_path: Path):
    pq.write_table(pa.Table.from_pylist(ROWS[:1]), tmp_path / "train-0.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS[1:]), tmp_path / "train-1.parquet")
    (tmp_path / "README.md").write_text("about", encoding="utf-8")
    corpus = load(tmp_path.parent, tmp_path.name)
    assert references(corpus) == ["2", "4", "6"]
    assert str(corpus.places[corpus.prompts[2].id]) == f"{tmp_path.name}/train-1.parquet row 2"
    pq.write_table(pa.Table.from_pylist(ROWS[:1]), tmp_path / "test.parquet")
    with pytest.raises(
        DataError, match=r'holds files of several splits: test, train\. Choose one, as in split = "train"'
    ):
        load(tmp_path.parent, tmp_path.name)
    assert references(load(tmp_path.parent, tmp_path.name, split="train")) == ["2", "4", "6"]
    with pytest.raises(
        DataError, match=r"no file whose name begins with 'dev'; the folder holds: README\.md, test"
    ):
        load(tmp_path.parent, tmp_path.name, split="dev")
    write(tmp_path / "train.jsonl", ROWS)
    with pytest.raises(
        DataError, match=r"holds several kinds of file: \.jsonl, \.parquet\. Name one file instead"
    ):
        load(tmp_path.parent, tmp_path.name, split="train")


def test_a_split_of_a_file_is_refused(tmp_path: Path):
    write(tmp_path / "a.jsonl", ROWS)
    with pytest.raises(ConfigError, match="split = 'test' means nothing for a file"):
        load(tmp_path, "a.jsonl", split="test")


@pytest.mark.filterwarnings("default")
def test_folders_saved_by_datasets_are_read(tmp_path: Path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS)
    rows.select([2, 0]).save_to_disk(str(tmp_path / "one"))
    assert references(load(tmp_path, "one")) == ["6", "2"]
    with pytest.raises(ConfigError, match="split = 'train' means nothing for a folder that holds one split"):
        load(tmp_path, "one", split="train")
    both = datasets.DatasetDict(train=rows.select([0, 1]), test=rows.select([2]))
    both.save_to_disk(str(tmp_path / "two"))
    assert references(load(tmp_path, "two")) == ["2", "4"]
    assert references(load(tmp_path, "two", split="test")) == ["6"]
    with pytest.raises(DataError, match="two: no split 'dev'; choose one of: train, test"):
        load(tmp_path, "two", split="dev")
    (tmp_path / "two" / "test" / "state.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match="two: load the folder saved by datasets: "):
        load(tmp_path, "two")


@pytest.mark.filterwarnings("default")
def test_a_hub_id_that_cannot_be_reached_says_that_no_file_was_found_either(tmp_path: Path):
    pytest.importorskip("datasets")
    with pytest.raises(DataError) as caught:
        load(tmp_path, "nobody/nothing-of-this-name", subset="main")
    assert str(caught.value).startswith(
        "nobody/nothing-of-this-name: no such file or folder beside the recipe, so it was asked of the hub "
        "(subset 'main', split 'train'): "
    )


IN_ANOTHER_PROCESS = """
import sys
from pathlib import Path
from bimetal.config.data import SourceOptions
from bimetal.data.records import load_source
{before}
try:
    print([p.reference for p in load_source(SourceOptions(path=sys.argv[1]), base=Path(sys.argv[2])).prompts])
except Exception as error:
    print(type(error).__name__, error)
"""


def run(before: str, path: str, base: Path, *, folder: Path, cache: Path) -> str:
    """Load in a process of its own, whose working folder and modules the test chooses."""
    code = IN_ANOTHER_PROCESS.format(before=before)
    source = Path(__file__).parents[2] / "src"
    environment = {
        "PYTHONPATH": str(source),
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(cache),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", code, path, str(base)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_without_the_package_datasets_a_hub_id_names_the_extra(tmp_path: Path):
    said = run("sys.modules['datasets'] = None", "owner/name", tmp_path, folder=tmp_path, cache=tmp_path)
    assert said.startswith("DataError owner/name: no such file or folder (")
    assert said.endswith("is not installed. Install the extra bimetal[data]")


def test_a_hub_id_goes_through_load_dataset(tmp_path: Path):
    pytest.importorskip("datasets")
    # Offline, load_dataset finds the "repository" in the folder the process runs in; ours is another.
    repository = tmp_path / "here" / "owner" / "name"
    repository.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(ROWS), repository / "train.parquet")
    (tmp_path / "recipes").mkdir()
    said = run("", "owner/name", tmp_path / "recipes", folder=tmp_path / "here", cache=tmp_path / "cache")
    assert said == "['2', '4', '6']"


def test_loading_files_imports_neither_torch_nor_datasets(tmp_path: Path):
    write(tmp_path / "a.jsonl", ROWS)
    before = "import atexit; atexit.register(lambda: print(sorted({'torch', 'datasets'} & set(sys.modules))))"
    assert run(before, "a.jsonl", tmp_path, folder=tmp_path, cache=tmp_path) == "['2', '4', '6']\n[]"
