"""Task templates: the same tasks each time, every one of them, and a clear word about what is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dhtcrawl.cli.main import run
from dhtcrawl.errors import ConfigError, Exit
from dhtcrawl.templates.expand import ActualTask, Skipped, count, expand
from dhtcrawl.templates.segment import Dictionary
from dhtcrawl.templates.template_file import read
from dhtcrawl.url import canonicalize

GOLDEN = "%E5%85%89%E6%98%8E+%E9%AB%98%E9%92%99+%E7%89%9B%E5%A5%B6+site%3Acca.org.cn&ie=utf-8"
ENGINE = '[engines.e]\nurl = "http://e.example/s?wd={query}&ie=utf-8"\n'
DOCS = Path(__file__).parents[2] / "docs" / "templates.md"


def tasks(text: str) -> list[ActualTask]:
    found = list(expand(read("t.toml", text)))
    assert not [each for each in found if isinstance(each, Skipped)]
    return found  # type: ignore[return-value]


def urls(text: str) -> list[str]:
    return [task.url.partition("wd=")[2].partition("&ie")[0] for task in tasks(text)]


def test_the_case_of_the_paper_to_the_byte() -> None:
    (task,) = tasks(
        ENGINE + '[[tasks]]\nname = "光明高钙牛奶"\nkeywords = ["光明", "高钙", "牛奶"]\nsites = ["cca.org.cn"]'
    )
    assert task.url == f"http://e.example/s?wd={GOLDEN}"


def test_four_products_on_sites_by_engines_are_all_their_combinations_in_order() -> None:
    text = (
        'words = ["光明", "高钙", "牛奶", "伊利", "纯"]\nchunk = 2\n'
        '[sites]\ntwo = ["a.example", "b.example"]\n'
        '[engines.one]\nurl = "http://one.example/s?wd={query}"\n'
        '[engines.more]\nurl = "http://more.example/s?n={page}&wd={query}"\npages = 3\n'
        'first = 0\nstep = 10\ntype = "meta"\n'
        + "".join(
            f'[[tasks]]\nname = "{name}"\nsites = ["two", "c.example"]\n'
            for name in ("光明高钙", "纯牛奶", "伊利牛奶", "高钙牛奶")
        )
    )
    found = tasks(text)
    assert len(found) == count(read("t.toml", text)) == 4 * 3 * (1 + 3)
    assert len({task.url for task in found}) == len(found)
    assert [(task.site, task.engine, task.page) for task in found[:6]] == [
        ("a.example", "one", 1), ("b.example", "one", 1), ("c.example", "one", 1),
        ("a.example", "more", 1), ("a.example", "more", 2), ("a.example", "more", 3),
    ]  # fmt: skip
    paged = [task for task in found if task.engine == "more"][:3]
    assert [parse_qs(urlsplit(task.url).query)["n"] for task in paged] == [["0"], ["10"], ["20"]]
    assert [task.chunk for task in paged] == [1, 1, 2]
    assert {task.type for task in found} == {"", "meta"}
    assert found[12].keywords == ("纯", "牛奶")


def test_a_name_is_taken_apart_at_the_longest_words_and_keywords_go_before_it() -> None:
    assert Dictionary(["牛奶", "高钙牛奶", "高钙"]).words_of("新高钙牛奶粉 牛奶x") == [
        "新",
        "高钙牛奶",
        "粉",
        "牛奶",
        "x",
    ]
    assert Dictionary([]).words_of(" one  two ") == ["one", "two"]
    assert Dictionary(["New  York", "York"]).words_of("a hotel New\tYork York ") == ["a", "hotel", "New York", "York"]
    (task,) = tasks(ENGINE + '[[tasks]]\nname = "特仑苏"\nkeywords = ["蒙牛", "特仑苏"]\n')
    assert task.keywords == ("蒙牛", "特仑苏")


@given(st.lists(st.text("abc", min_size=1, max_size=3)), st.text("abcd", max_size=20))
def test_taking_apart_loses_nothing(words: list[str], text: str) -> None:
    found = Dictionary(words).words_of(text)
    assert "".join(found) == text
    assert "" not in found


def test_a_query_has_operator_extra_words_and_site_as_the_engine_wants_them() -> None:
    engine = ENGINE + 'join = " AND "\nextra = ["price"]\nsite = "in:{site}"\n'
    assert urls(engine + '[[tasks]]\nname = "a b"\nsites = ["x.org"]') == ["a+AND+b+price+in%3Ax.org"]
    assert urls(engine + '[[tasks]]\nname = "a b"') == ["a+AND+b+price"]


def test_a_query_is_written_in_the_charset_of_the_engine_as_a_form_would() -> None:
    assert urls(ENGINE + 'encoding = "GB2312"\n[[tasks]]\nname = "牛奶 & ♞"') == ["%C5%A3%C4%CC+%26+%26%239822%3B"]
    path = '[engines.e]\nurl = "http://e.example/s/{query}"\nencoding = "gbk"\n[[tasks]]\nname = "牛"'
    assert [task.url for task in tasks(path)] == ["http://e.example/s/%C5%A3"]


def test_jieba_takes_apart_what_the_dictionary_leaves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.toml"
    head = 'segmenter = "jieba"\nwords = ["牛奶公司"]\n'
    file.write_text(head + ENGINE + '[[tasks]]\nname = "光明高钙牛奶 light 牛奶公司特仑苏"', "utf-8")
    assert run(["expand", str(file)]) == Exit.COMPLETE
    (task,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert task["keywords"] == ["光明", "高钙", "牛奶", "light", "牛奶公司", "特仑苏"]


def test_a_task_that_has_no_url_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = json.dumps(["牛" * 490 + str(number) for number in range(3)], ensure_ascii=False)
    file = tmp_path / "t.toml"
    file.write_text(ENGINE + f'[[tasks]]\nname = "long"\nkeywords = {long}\n[[tasks]]\nname = "b"', "utf-8")
    assert run(["expand", str(file)]) == Exit.CONFIG
    out, err = capsys.readouterr()
    assert [json.loads(line)["task"] for line in out.splitlines()] == ["b"]
    assert "would be too long or another page's: 1; change" in err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "t.toml has no engine; write [engines.NAME] with its url"),
        (ENGINE, "t.toml has no task; write [[tasks]] with its name"),
        (
            "".join(ENGINE.replace("engines.e", f"engines.e{n}") for n in range(257)),
            "t.toml has 257 engines; use up to 256, and several files",
        ),
        (ENGINE + "[[tasks]]", "t.toml:3: tasks.1 lacks 'name'; it is required"),
        (ENGINE + '[[tasks]]\nname = " "', "t.toml:4: tasks.1.name is empty; give the task a name"),
        (ENGINE + "[[tasks]]\nname = 3", "t.toml:4: tasks.1.name is 3; use a text in quotes"),
        (ENGINE + '[[tasks]]\nname = "a"\nsite = ["b"]', "t.toml:5: tasks.1.site is no key here; did you mean sites?"),
        (
            ENGINE + '[[tasks]]\nname = "a"\nsites = ["no_host!"]',
            "t.toml:5: tasks.1.sites is ['no_host!']; 'no_host!' is no host",
        ),
        (
            ENGINE + '[[tasks]]\nname = "a"\nengines = ["f"]',
            "t.toml:5: tasks.1.engines names 'f', and there is no [engines.f]",
        ),
        (
            ENGINE + '[[tasks]]\nname = "a"\npages = 2',
            "t.toml:5: tasks.1.pages asks for several pages; the url of engine e",
        ),
        (ENGINE + '[[tasks]]\nname = "a"\nkeywords = []', "t.toml:5: tasks.1.keywords is []; use a list of texts"),
        (
            ENGINE + '[[tasks]]\nname = "a"\nkeywords = ["b", "b"]',
            "t.toml:5: tasks.1.keywords is ['b', 'b']; 'b' stands there twice",
        ),
        (ENGINE + "pages = 2", "t.toml:3: engines.e.pages asks for several pages; write {page}"),
        (ENGINE + "pages = true", "t.toml:3: engines.e.pages is True; use a whole number from 1 to 1000"),
        (ENGINE + 'encoding = "rot13"', "t.toml:3: engines.e.encoding is 'rot13'; use the name of an encoding"),
        (ENGINE + 'site = "site:"', "t.toml:3: engines.e.site is 'site:'; write {site} where the host goes"),
        (ENGINE + 'extra = ["a\\u0007"]', "t.toml:3: engines.e.extra is ['a\\x07']; remove the control character"),
        (ENGINE + 'delay = "soon"', "t.toml:3: engines.e.delay is 'soon'; use a duration such as"),
        (
            ENGINE + '[engines.f]\nurl = "http://e.example/g?q={query}"\ntype = "meta"\n[[tasks]]\nname = "a"',
            "t.toml:5: engines.f.type is not the type of engine e, which has the same host; use one",
        ),
        ('segmenter = "jieba"', "t.toml:1: segmenter is 'jieba'; run 'pip install rjieba' where"),
        ('segmenter = "nltk"', "t.toml:1: segmenter is 'nltk'; use dictionary or jieba"),
        ('[engines."a b"]', "t.toml:1: engines.a b is no name"),
        ("[engines.e]", "t.toml:1: engines.e lacks 'url'; it is required"),
        (
            '[engines.e]\nurl = "http://e/"',
            "t.toml:2: engines.e.url is 'http://e/'; write {query} where the query goes",
        ),
        ('[engines.e]\nurl = "ftp://e/{query}"', "t.toml:2: engines.e.url is 'ftp://e/{query}'; use a URL that begins"),
        (
            '[engines.e]\nurl = "http://{query}/"',
            "t.toml:2: engines.e.url is 'http://{query}/'; the host must be the same",
        ),
        (
            '[engines.e]\nurl = "http://e/?q={query}#p={page}"\npages = 3',
            "t.toml:2: engines.e.url is 'http://e/?q={query}#p={page}'; no engine is told what stands behind the #",
        ),
        ('[engines.e]\nurl = "http://e/{q}"', "t.toml:2: engines.e.url is 'http://e/{q}'; {q} stands for nothing"),
        ('[engines.e]\nurl = "http://e/{query}}"', "t.toml:2: engines.e.url is 'http://e/{query}}'; a brace is open"),
        ("engines = 3", "t.toml:1: engines is 3; use a table"),
        ("chunk = 0", "t.toml:1: chunk is 0; use a whole number from 1"),
        ("chunk =", "t.toml is not valid TOML"),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read("t.toml", text)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)


@given(
    st.lists(st.tuples(words, st.lists(words, max_size=3, unique=True)), min_size=1, max_size=3),
    st.sampled_from(["utf-8", "gbk", "big5", "shift_jis", "iso-2022-jp", "gb18030", "koi8-r", "utf-16le", "euc-kr"]),
    words,
    st.integers(1, 3),
)
def test_every_task_becomes_the_same_actual_ones_each_time(
    virtual: list[tuple[str, list[str]]], encoding: str, join: str, pages: int
) -> None:
    def quoted(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "")

    text = '[engines.e]\nurl = "http://e.example/{page}?q={query}"\n'
    text += f'encoding = "{encoding}"\npages = {pages}\njoin = {quoted(join)}\n'
    for name, keywords in virtual:
        text += f"[[tasks]]\nname = {quoted(name)}\n" + (f"keywords = {quoted(keywords)}\n" if keywords else "")
    file = read("t.toml", text)
    found = list(expand(file))
    assert found == list(expand(file))
    assert len(found) == count(file)
    for task in found:
        assert isinstance(task, ActualTask)
        assert canonicalize(task.url) == task.url
        assert task.url.isascii()


def test_the_command_prints_a_task_a_line_or_how_many_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.search(r"```toml\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    first = re.search(r"```json\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert example is not None
    assert first is not None
    (tmp_path / "products.toml").write_text(example[1], "utf-8")
    assert run(["expand", str(tmp_path / "products.toml")]) == Exit.COMPLETE
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == first[1].strip()
    assert run(["expand", str(tmp_path / "products.toml"), "--count"]) == Exit.COMPLETE
    assert capsys.readouterr().out.strip() == str(len(lines)) == "13"


def test_words_may_be_in_a_file_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.toml").write_text('words_file = "w.txt"\n' + ENGINE + '[[tasks]]\nname = "高钙牛奶"', "utf-8")
    assert run(["expand", str(tmp_path / "t.toml")]) == Exit.CONFIG
    assert "t.toml:1: words_file is 'w.txt': cannot read" in capsys.readouterr().err
    (tmp_path / "w.txt").write_text("\ufeff# dairy\n牛奶\n\n高钙\n", "utf-8")
    assert run(["expand", str(tmp_path / "t.toml")]) == Exit.COMPLETE
    assert json.loads(capsys.readouterr().out)["keywords"] == ["高钙", "牛奶"]
    (tmp_path / "w.txt").write_bytes("牛奶".encode("gbk"))
    assert run(["expand", str(tmp_path / "t.toml")]) == Exit.CONFIG
    assert "is not UTF-8" in capsys.readouterr().err
