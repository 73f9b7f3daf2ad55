"""Files of rules: which pages they are for, and one clear line about what is wrong."""

from __future__ import annotations

import pytest

from dhtcrawl.errors import ConfigError
from dhtcrawl.extract.rules_file import DOTS_MAX, FIELDS_MAX, NESTING_MAX, RULES_MAX, read
from dhtcrawl.url import canonicalize

RULE = '[[rules]]\nname = "r"\nsite = "shop.example"\n'
FIELD = RULE + '[[rules.fields]]\nname = "f"\nselector = "p"\n'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "r.toml has no rule; write [[rules]] with its name and site"),
        ("rules = 3", "r.toml:1: rules is 3; write [[rules]] for each of them"),
        ("[[rules]", "r.toml is not valid TOML"),
        (RULE * (RULES_MAX + 1), f"r.toml has {RULES_MAX + 1} rules; use up to {RULES_MAX}"),
        (RULE + 'source = "rdfa"', "r.toml:4: rules.1.source is 'rdfa'; use one of json-ld, microdata, opengraph, or"),
        (
            RULE + 'source = ["json-ld", "json-ld"]',
            "r.toml:4: rules.1.source is ['json-ld', 'json-ld']; name each once",
        ),
        (
            RULE + 'source = ["main-text", "json-ld"]',
            "r.toml:4: rules.1.source is ['main-text', 'json-ld']; use one of",
        ),
        (RULE + 'source = "json-ld"\nrecord = "p"', "r.toml:5: rules.1.record is no key here; there are source, name"),
        (RULE, "r.toml:1: rules.1 has no field; write [[…fields]] with its name and selector"),
        ('[[rules]]\nsite = "a.example"', "r.toml:1: rules.1 lacks 'name'; it is required"),
        ('[[rules]]\nname = "a"', "r.toml:1: rules.1 lacks 'site'; it is required"),
        ('[[rules]]\nname = "1"', "r.toml:2: rules.1.name is '1'; use up to 64 letters, digits, - and _, a letter"),
        ('[[rules]]\nname = "a"\nsite = "shop.*"', "r.toml:3: rules.1.site is 'shop.*'; use a host such as"),
        ('[[rules]]\nname = "a"\nsite = "http://a/"', "r.toml:3: rules.1.site is 'http://a/'; use a host such as"),
        ('[[rules]]\nname = "a"\nsite = "a.example/x"', "r.toml:3: rules.1.site is 'a.example/x'; use a host"),
        ('[[rules]]\nname = "a"\nsite = "u@a.example"', "r.toml:3: rules.1.site is 'u@a.example'; use a host"),
        ('[[rules]]\nname = "a"\nsite = []', "r.toml:3: rules.1.site is []; use one text, or a list of up to 20"),
        (RULE + 'pages = "p/*"', "r.toml:4: rules.1.pages is 'p/*'; use a path such as"),
        (RULE + 'pages = "/*********"', "r.toml:4: rules.1.pages is '/*********'; use up to 8 *"),
        (RULE + 'record = "div["', "r.toml:4: rules.1.record is 'div['; '[' begins no selector"),
        (FIELD + 'selecter = "p"', "r.toml:7: rules.1.fields.1.selecter is no key here; did you mean selector?"),
        (FIELD + "required = 1", "r.toml:7: rules.1.fields.1.required is 1; use true or false"),
        (FIELD + 'type = "money"', "r.toml:7: rules.1.fields.1.type is 'money'; use one of text, number, date, url,"),
        (FIELD + "type = []", "r.toml:7: rules.1.fields.1.type is []; use one of"),
        (FIELD + 'decimal = ","', "r.toml:7: rules.1.fields.1.decimal is no key here"),
        (FIELD + 'type = "number"\ndecimal = "1"', "r.toml:8: rules.1.fields.1.decimal is '1'; use one character"),
        (
            FIELD + 'type = "number"\ndecimal = " "\ngroup = "\\u00a0"',
            "r.toml:9: rules.1.fields.1.group is '\\xa0', and so is the decimal mark",
        ),
        (FIELD + 'type = "number"\ngroup = "."', "r.toml:8: rules.1.fields.1.group is '.', and so is the decimal mark"),
        (FIELD + 'type = "date"\nformat = "%d.%m"', "r.toml:8: rules.1.fields.1.format is '%d.%m'; use a format with"),
        (FIELD + 'type = "date"\nformat = "%Q"', "r.toml:8: rules.1.fields.1.format is '%Q'; %Q stands for nothing"),
        (FIELD + 'type = "date"\nformat = "%Y %"', "r.toml:8: rules.1.fields.1.format is '%Y %'; % stands for"),
        (
            FIELD + 'type = "date"\nformat = "%Y%Y"',
            "r.toml:8: rules.1.fields.1.format is '%Y%Y'; %Y stands there twice",
        ),
        (FIELD + 'take = "href"', "r.toml:7: rules.1.fields.1.take is 'href'; use text, html, or an attribute such"),
        (FIELD + 'transforms = "strip"', "r.toml:7: rules.1.fields.1.transforms is 'strip'; use a list of up to 20"),
        (
            FIELD + 'transforms = ["trim"]',
            "r.toml:7: rules.1.fields.1.transforms is ['trim']; 'trim' is no transform; there are strip, collapse,",
        ),
        (
            FIELD + 'transforms = [{ regex = "a+" }]',
            "r.toml:7: rules.1.fields.1.transforms is [{'regex': 'a+'}]; \"{'regex': 'a+'}\" is no transform",
        ),
        (FIELD + 'transforms = [{ replace = ["a"] }]', "r.toml:7: rules.1.fields.1.transforms is [{'replace': ['a']}]"),
        (FIELD + "transforms = [{ after = 3 }]", "r.toml:7: rules.1.fields.1.transforms is [{'after': 3}]; use a text"),
        (FIELD + '[[rules.fields]]\nname = "f"', "r.toml:8: rules.1.fields.2.name is 'f', and so is that of field 1;"),
        (FIELD + FIELD, "r.toml:8: rules.2.name is 'r', and so is that of rule 1; use another"),
        (FIELD + 'type = "records"', "r.toml:4: rules.1.fields.1 has no field"),
        (
            RULE + '[[rules.fields]]\nname = "f"\ntype = "records"\nfields = [{ name = "a" }]',
            "r.toml:4: rules.1.fields.1 lacks 'selector'; it is required where the type is records",
        ),
        (
            FIELD + 'type = "records"\nfields = [{ name = "a" }, { name = "a" }]',
            "r.toml:8: rules.1.fields.1.fields.2.name is 'a', and so is that of field 1",
        ),
        (
            RULE + "fields = [" + ", ".join(f'{{ name = "f{each}" }}' for each in range(FIELDS_MAX + 1)) + "]",
            f"r.toml:1: rules.1 has {FIELDS_MAX + 1} fields; use up to {FIELDS_MAX}",
        ),
        # What Python takes for the end of a line, and TOML does not.
        *(
            ("\n" + ".".join([f'"{end}"'] * (DOTS_MAX + 2)) + " = 1", f"r.toml:2: has more than {DOTS_MAX} dots; break")
            for end in ("a", "\x85", "\u2028", "\u2029")
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        read("r.toml", text)
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)


def test_records_within_records_end_somewhere() -> None:
    inner = '[{ name = "a" }]'
    for _ in range(NESTING_MAX):
        inner = f'[{{ name = "a", type = "records", selector = "p", fields = {inner} }}]'
    read("r.toml", f"{RULE}fields = {inner}")
    with pytest.raises(ConfigError, match="records within records, more than 4 deep; use fewer"):
        read("r.toml", f'{RULE}fields = [{{ name = "a", type = "records", selector = "p", fields = {inner} }}]')


@pytest.mark.parametrize(
    ("site", "url", "applies"),
    [
        ("a.example", "http://a.example/", True),
        ("a.example", "https://a.example:8443/x?y", True),
        ("A.Example", "http://a.example/", True),
        ("a.example", "http://www.a.example/", False),
        ("a.example:8443", "https://a.example:8443/", True),
        ("*", "https://a.example:8443/", True),
        ("a.example:8443", "https://a.example/", False),
        ("*.a.example", "http://www.a.example/", True),
        ("*.a.example", "http://a.example/", False),
        ("*.a.example", "http://ba.example/", False),
        ("bücher.example", "http://xn--bcher-kva.example/", True),
        ("[::1]", "http://[::1]:8080/", True),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("[::1]:8080", "http://[::1]/", False),
    ],
)
def test_a_rule_is_for_a_host_or_those_below_one(site: str, url: str, applies: bool) -> None:
    text = f'[[rules]]\nname = "r"\nsite = "{site}"\n[[rules.fields]]\nname = "f"\n'
    assert bool(read("r.toml", text).rules_of(url)) is applies


@pytest.mark.parametrize(
    ("pattern", "path", "applies"),
    [
        ("*", "/", True),
        ("/p/*", "/p/", True),
        ("/p/*", "/p/1/2", True),
        ("/p/*", "/q/p/1", False),
        ("/p", "/p/1", False),
        ("/p", "/p?x=1", True),
        ("/p?x=*", "/p?x=1", True),
        ("/p?x=*", "/p", False),
        ("*.html", "/a/b.html", True),
        ("*.html", "/a/b.html/c", False),
        ("/*/x/*/y", "/a/x/b/y", True),
        ("/*/x/*/y", "/a/x/y", False),
        ("/ab*ba", "/aba", False),
        ("/ab*ba", "/abba", True),
        ("/straße/*", "/straße/1", True),
        ("*/大学/*?q=ü *", "/x/大学/?q=ü 1", True),
        ("/my file's {1}", "/my file's {1}", True),
        ("/%7Eli/a%2fb*", "/~li/a%2Fb", True),
        ("/a//*/b", "/a//x/b", True),
        ("/#/p/*", "/", False),
    ],
)
def test_a_pattern_fits_the_path_and_where_it_names_one_the_query(pattern: str, path: str, applies: bool) -> None:
    text = f'{RULE}pages = "{pattern}"\n[[rules.fields]]\nname = "f"\n'
    url = canonicalize(f"http://shop.example{path}")
    assert url is not None
    assert bool(read("r.toml", text).rules_of(url)) is applies
