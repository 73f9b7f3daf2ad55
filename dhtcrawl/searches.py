"""Which pages of results a crawl is to fetch, where task templates say so. No I/O.

A *search* is what one virtual task wants of one engine about one site: some pages of results, each a seed. There may be
millions of them, so a crawl's spec carries what they are made of (docs/decisions/0082):

    {"version": 1, "engines": [[name, url, join, …, delay], …], "sites": [[host, …], …],
     "tasks": [[name, [keyword, …], sites, [engine, …], pages], …]}

where `sites` and `engine` of a task count the lists from 0 on, and 0 pages are as many as each engine has. Every node
makes the same pages of it in the same order (`Searches.pages`), and says of a URL which searches want it
(`Searches.of`) and where its key lies (`Searches.place_of`) without the others: a URL is taken apart by its engine's
pattern into query and page, and the query into the words and what asks for a site.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus

from dhtcrawl.keyspace import search_key
from dhtcrawl.url import canonicalize, host_of

VERSION: Final = 1  # of how pages are made of a spec; another one crawls something else
TEXT_CHARS_MAX: Final = 500
PAGES_MAX: Final = 1_000  # of one search
NUMBER_MAX: Final = 1_000_000
DELAY_MAX_S: Final = 1e9
RESULTS_MAX: Final = 10_000_000  # pages of results, in all searches
ENGINES_MAX: Final = 256
NO_SITE: Final = ""

FIELD: Final = re.compile(r"\{([^{}]*)\}")
SITE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?", re.ASCII)
_BEYOND_ASCII: Final = re.compile(r"[^\0-\x7f]+")
_ASCII_QUOTED: Final = {code: quote_plus(chr(code)) for code in range(128)}
# What stands for the fields of a URL while its canonical form is looked at: no such form changes it.
_STANDS_FOR: Final = {"query": "dhtcrawl0query0field", "page": "dhtcrawl0page0field"}
_STANDS: Final = re.compile("|".join(_STANDS_FOR.values()))
_QUOTED: Final = "A-Za-z0-9_.~%+-"  # of what a query consists in a URL
_FIELD_PATTERNS: Final = {
    _STANDS_FOR["query"]: (f"(?P<query>[{_QUOTED}]++)", "(?P=query)"),
    _STANDS_FOR["page"]: ("(?P<page>0|[1-9][0-9]{0,9}+)", "(?P=page)"),
}
_UNCLEAR: Final = re.compile("{query}[%s]|{page}(?:[0-9]|{query})".format(**_STANDS_FOR) % _QUOTED)
# As long as a site may be: where an engine says it twice, each length would be compared with what follows.
_QUOTED_SITE: Final = f"(?P<site>(?:[a-z0-9.-]|%3A){{1,{TEXT_CHARS_MAX}}})"


class Search(NamedTuple):
    """What one virtual task wants of one engine about one site: this page of results."""

    task: str  # the name of the virtual task
    engine: str
    site: str  # empty: any
    page: int  # from 1 on


class SearchEngine(NamedTuple):
    """A search engine: how a query becomes a URL."""

    name: str
    url: str  # with {query}, and {page} where it has several
    join: str = " "  # between two keywords
    site: str = "site:{site}"  # how a query asks for one site only
    extra: tuple[str, ...] = ()  # words of every query
    encoding: str = "utf-8"  # its name in the WHATWG Encoding standard
    pages: int = 1
    first: int = 1  # {page} of the first page
    step: int = 1
    type: str = ""  # of the nodes that may ask it; any, where it is empty
    delay_s: float | None = None  # between two requests to its host, of all nodes together; None: the crawl's

    @property
    def host(self) -> str:
        """The host of all its pages."""
        return host_of(self.url_of("a", 0) or "")

    def query(self, keywords: Iterable[str], site: str) -> str:
        """The words of a query."""
        words = [self.join.join(keywords), *self.extra, *([self.site.replace("{site}", site)] if site else ())]
        return " ".join(filter(None, words))

    def url_of(self, query: str, page: int) -> str | None:
        """The canonical URL of a page of results, counted from 0 on; None where it is too long.

        A character that the encoding lacks becomes a character reference, as in a form of a web page.
        """
        fields = {
            "query": quoted(query, self.encoding),
            "page": str(self.first + page * self.step),
        }
        return canonicalize(FIELD.sub(lambda field: fields[field[1]], self.url))


def quoted(text: str, encoding: str) -> str:
    """A text as it stands in a query, in an encoding by its name in the WHATWG Encoding standard."""
    from dhtcrawl.query_charset import encode_query  # few crawls have searches

    # The characters beyond ASCII as in the query of a link, the others as in a form.
    found = encode_query(f"?{text.translate(_ASCII_QUOTED)}", encoding)[1:]
    return found if found.isascii() else _BEYOND_ASCII.sub(lambda run: quote_plus(run[0]), found)


def fault_of(engine: SearchEngine) -> tuple[str, str] | None:
    """What is wrong with an engine, and at which of its keys: its URLs have to say what they are asked for."""
    fields = FIELD.findall(engine.url)
    if "query" not in fields:
        return f"is {engine.url!r}; write {{query}} where the query goes", "url"
    if FIELD.findall(engine.site) == []:
        return f"is {engine.site!r}; write {{site}} where the host goes", "site"
    if engine.pages > 1 and "page" not in fields:
        return "asks for several pages; write {page} into the url where its number goes", "pages"
    one, other = engine.url_of("a", 0), engine.url_of("b", 1)
    if one is None or other is None:
        return f"is {engine.url!r}; use a URL that begins with http:// or https://", "url"
    if host_of(one) != host_of(other):
        return f"is {engine.url!r}; the host must be the same for all queries and pages", "url"
    if one == engine.url_of("b", 0):
        return f"is {engine.url!r}; no engine is told what stands behind the #", "url"
    if _UNCLEAR.search(_fixed(engine)):
        return f"is {engine.url!r}; write a mark such as & or / behind {{query}}, and no digit behind {{page}}", "url"
    return None


def _fixed(engine: SearchEngine) -> str:
    """A URL of the engine with what stands for its fields."""
    return canonicalize(FIELD.sub(lambda field: _STANDS_FOR[field[1]], engine.url)) or ""


class _Urls:
    """Takes the URLs of an engine apart."""

    def __init__(self, engine: SearchEngine) -> None:
        self._engine = engine
        fixed = _fixed(engine)
        self.directory = _STANDS.split(fixed.partition("?")[0])[0].rpartition("/")[0] + "/"
        self._pattern = re.compile(_pattern(fixed))
        clause, site = quoted(engine.site, engine.encoding), re.escape("%7Bsite%7D")
        first, *more = re.escape(_canonical(clause)).split(re.escape(site))
        self._clause = re.compile(_QUOTED_SITE.join([first, "(?P=site)".join(more)]))
        self._clause_words = clause.count("+") + 1

    def taken(self, url: str) -> tuple[str, int] | None:
        """The query of one of the engine's URLs, quoted, and the page, from 0 on; None of any other URL."""
        found = self._pattern.fullmatch(url)
        if found is None:
            return None
        groups, engine = found.groupdict(), self._engine
        page, rest = divmod(int(groups.get("page", engine.first)) - engine.first, engine.step)
        return None if rest or page < 0 else (groups["query"], page)

    def split(self, query: str) -> tuple[str, str] | None:
        """The words before what asks for a site, and the site; None of a query that asks for none."""
        words = query.rsplit("+", self._clause_words)
        found = self._clause.fullmatch("+".join(words[1:])) if len(words) > self._clause_words else None
        return None if found is None else (words[0], found["site"].replace("%3A", ":"))

    def words(self, keywords: Iterable[str]) -> str:
        """What `taken` has of a query that asks for no site."""
        return _canonical(quoted(self._engine.query(keywords, NO_SITE), self._engine.encoding))


def _pattern(fixed: str) -> str:
    """A pattern of the URLs of an engine, of which this is one: what stands for a field may be anything, but alike."""
    parts, met = [], set()
    for part in re.split(f"({_STANDS.pattern})", fixed):
        first, again = _FIELD_PATTERNS.get(part, (re.escape(part),) * 2)
        parts.append(again if part in met else first)
        met.add(part)
    return "".join(parts)


def _canonical(text: str) -> str:
    """A quoted text as it stands in a canonical URL: other escapes than those of ISO-2022-JP are canonical."""
    return text if "%1B" not in text else (canonicalize(f"http://a/?{text}") or "").partition("?")[2]


def _site_chars(site: str) -> int:
    """How long a site is in a query, at least in comparison."""
    return len(quote_plus(site))


class Wanted(NamedTuple):
    """A virtual task: what to look for, and where."""

    name: str
    keywords: tuple[str, ...]
    sites: int  # the place of their list
    engines: tuple[int, ...]  # their places
    pages: int = 0  # of each engine; 0: as many as it has


class ResultPage(NamedTuple):
    """One page of results."""

    url: str | None  # None: with it the URL would be too long, or another page's, as that of a query ".." in a path
    task: int  # the place of the virtual task
    engine: int
    site: str
    page: int  # from 0 on


@dataclass(frozen=True)
class Searches:
    """All searches of a crawl; most crawls have none."""

    engines: tuple[SearchEngine, ...] = ()
    sites: tuple[tuple[str, ...], ...] = ()  # lists of hosts, each as long as tasks are to have it; NO_SITE: any host
    tasks: tuple[Wanted, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.engines)

    def __len__(self) -> int:
        """How many pages of results there are, as often as they are wanted."""
        return self._count

    @cached_property
    def _count(self) -> int:
        return sum(
            len(self.sites[task.sites]) * sum(task.pages or self.engines[place].pages for place in task.engines)
            for task in self.tasks
        )

    @cached_property
    def delays(self) -> dict[str, float]:
        """By the host of an engine, its own delay in seconds: of two engines on one host the longer one."""
        found: dict[str, float] = {}
        for engine in self.engines:
            if engine.delay_s is not None:
                found[engine.host] = max(engine.delay_s, found.get(engine.host, 0.0))
        return found

    @cached_property
    def types(self) -> dict[str, str]:
        """By the host of an engine, the type of nodes that alone may ask it."""
        return {engine.host: engine.type for engine in self.engines if engine.type}

    @cached_property
    def directories(self) -> dict[str, list[str]]:
        """By the host of engines, the URLs below which their pages of results lie."""
        return {host: [urls.directory for _, urls in here] for host, here in self._urls.items()}

    @cached_property
    def _urls(self) -> dict[str, list[tuple[int, _Urls]]]:
        """By host, its engines."""
        found: dict[str, list[tuple[int, _Urls]]] = {}
        for place, engine in enumerate(self.engines):
            found.setdefault(engine.host, []).append((place, _Urls(engine)))
        return found

    @cached_property
    def _urls_of(self) -> dict[int, _Urls]:
        """By the place of the engine."""
        return {place: urls for here in self._urls.values() for place, urls in here}

    @cached_property
    def _known_words(self) -> dict[int, dict[str, list[int]]]:
        return {}

    def _tasks_of(self, place: int) -> dict[str, list[int]]:
        """The tasks that want an engine, by the words of their queries: looked up once its first URL is asked about."""
        found = self._known_words.get(place)
        if found is None:
            found, urls = self._known_words.setdefault(place, {}), self._urls_of[place]
            for number, task in enumerate(self.tasks):
                if place in task.engines:
                    found.setdefault(urls.words(task.keywords), []).append(number)
        return found

    @cached_property
    def _places_of_sites(self) -> list[dict[str, int]]:
        return [{site: place for place, site in enumerate(each)} for each in self.sites]

    def pages(self, first: int = 0, wanted: Callable[[bytes], bool] | None = None) -> Iterator[ResultPage]:
        """The pages of results of the virtual tasks from the `first` on.

        Each task for each of its engines, there for each of its sites, there page by page. `wanted(place)` says of the
        20 bytes that place a search's pages whether they are wanted; some that are not come nevertheless.
        """
        # Where another engine could have the same pages, the first of them places these.
        alone = {place for here in self._urls.values() if len(here) == 1 for place, _ in here}

        @cache
        def may_skip(place: int, site: str) -> bool:
            if wanted is None or site == NO_SITE or place not in alone:
                return False
            return not wanted(search_key(self.engines[place].name, site))

        for number in range(first, len(self.tasks)):
            task = self.tasks[number]
            for place, site in itertools.product(task.engines, self.sites[task.sites]):
                if not may_skip(place, site):
                    for page in range(task.pages or self.engines[place].pages):
                        yield ResultPage(self._url(task, place, site, page), number, place, site, page)

    def without_url(self) -> int:
        """How many pages of results have no URL.

        Where the last page of a task about its longest site has one, so have the others: only the rest is looked at.
        """
        longest = [{max(each, key=_site_chars, default=NO_SITE), *({NO_SITE} & set(each))} for each in self.sites]
        missing = 0
        for task in self.tasks:
            for place in task.engines:
                last = (task.pages or self.engines[place].pages) - 1
                if any(self._url(task, place, site, last) is None for site in longest[task.sites]):
                    pages = itertools.product(self.sites[task.sites], range(last + 1))
                    missing += sum(self._url(task, place, *page) is None for page in pages)
        return missing

    def _url(self, task: Wanted, place: int, site: str, page: int) -> str | None:
        engine = self.engines[place]
        url = engine.url_of(engine.query(task.keywords, site), page)
        return None if url is None or self._urls_of[place].taken(url) is None else url

    def of(self, url: str) -> list[Search]:
        """The searches that want a page, in their order; empty where none does."""
        found: list[tuple[int, int, int, int]] = []
        for engine, urls in self._urls.get(host_of(url), ()):
            taken = urls.taken(url)
            if taken is not None:
                query, page = taken
                for words, site in filter(None, ((query, NO_SITE), urls.split(query))):
                    tasks = self._tasks_of(engine).get(words, ())
                    found += [place for task in tasks if (place := self._place(task, engine, site, page)) is not None]
        return [self._found(*place) for place in sorted(found)]

    def _place(self, number: int, engine: int, site: str, page: int) -> tuple[int, int, int, int] | None:
        """By what the searches of a page are sorted; None where this task does not want it."""
        task = self.tasks[number]
        place = self._places_of_sites[task.sites].get(site)
        if place is None or page >= (task.pages or self.engines[engine].pages):
            return None
        return number, task.engines.index(engine), place, page

    def _found(self, number: int, engine: int, site: int, page: int) -> Search:
        task = self.tasks[number]
        name = self.engines[task.engines[engine]].name
        return Search(task.name, name, self.sites[task.sites][site], page + 1)

    def place_of(self, url: str, host: str) -> bytes | None:
        """The 20 bytes that place a page of results: one node has all pages of an engine about a site.

        That of a URL as the engine's are is placed, too, whoever wants it. None: it is none of an engine's.
        """
        for place, urls in self._urls.get(host, ()):
            taken = urls.taken(url)
            if taken is not None:
                split = urls.split(taken[0])
                return search_key(self.engines[place].name, NO_SITE if split is None else split[1])
        return None

    def plain(self) -> dict[str, Any]:
        """As it is packed, or written as JSON; empty where there are none."""
        if not self.engines:
            return {}
        engines = [
            [e.name, e.url, e.join, e.site, list(e.extra), e.encoding, e.pages, e.first, e.step, e.type, e.delay_s]
            for e in self.engines
        ]
        tasks = [[name, list(words), sites, list(engines), pages] for name, words, sites, engines, pages in self.tasks]
        return {"version": VERSION, "engines": engines, "sites": [list(each) for each in self.sites], "tasks": tasks}


def named(search: Search) -> dict[str, Any]:
    """A page of results as outputs and answers have it."""
    return search._asdict()


# What others say


def read_searches(plain: object) -> Searches:
    """What `Searches.plain` gave, from a client or another node: anything may be wrong in it.

    Raises:
        ValueError: what is wrong with it.
    """
    if plain == {}:
        return Searches()
    if not isinstance(plain, Mapping) or plain.keys() != {"version", "engines", "sites", "tasks"}:
        raise ValueError("searches: not as this version writes them")
    if plain["version"] != VERSION:
        raise ValueError("searches: of another version; upgrade dhtcrawl")
    if len(_list(plain["engines"])) > ENGINES_MAX:
        raise ValueError(f"searches: more than {ENGINES_MAX} engines")
    engines = tuple(map(_engine, plain["engines"]))
    sites = tuple(tuple(map(_site, _distinct(each))) for each in _list(plain["sites"]))
    tasks = tuple(_task(each, len(engines), len(sites)) for each in _list(plain["tasks"]))
    if not engines or len({engine.name for engine in engines}) < len(engines):
        raise ValueError("searches: no engines, or two of one name")
    searches = Searches(engines, sites, tasks)
    kinds: dict[str, str] = {}
    if any(kinds.setdefault(engine.host, engine.type) != engine.type for engine in engines):
        raise ValueError("searches: engines of one host and different types")
    if len(searches) > RESULTS_MAX:
        raise ValueError(f"searches: more than {RESULTS_MAX} pages")
    return searches


def _engine(row: object) -> SearchEngine:
    name, url, join, site, extra, encoding, pages, first, step, node_type, delay = _list(row, 11)
    from webencodings.labels import LABELS  # few crawls have searches

    if encoding not in LABELS.values() or not all(field in ("query", "page") for field in FIELD.findall(_text(url))):
        raise ValueError("searches: an engine is none")
    engine = SearchEngine(
        _text(name),
        _text(url),
        _text(join),
        _text(site),
        tuple(map(_text, _list(extra))),
        encoding,
        _number(pages, 1, PAGES_MAX),
        _number(first, 0, NUMBER_MAX),
        _number(step, 1, NUMBER_MAX),
        _text(node_type),
        None if delay is None else _delay(delay),
    )
    fault = fault_of(engine)
    if fault is not None or set(FIELD.findall(engine.site)) != {"site"}:
        raise ValueError("searches: an engine is none")
    return engine


def _task(row: object, engines: int, sites: int) -> Wanted:
    name, keywords, group, places, pages = _list(row, 5)
    found = tuple(_number(place, 0, engines - 1) for place in _distinct(places))
    words = tuple(map(_text, _list(keywords)))
    return Wanted(_text(name), words, _number(group, 0, sites - 1), found, _number(pages, 0, PAGES_MAX))


def _list(value: object, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise ValueError("searches: no list where there is one, or one of another length")
    return value


def _distinct(value: object) -> list[Any]:
    found = _list(value)
    if len(set(map(repr, found))) < len(found):
        raise ValueError("searches: the same stands there twice")
    return found


def _site(value: object) -> str:
    if _text(value) and not SITE.fullmatch(_text(value)):
        raise ValueError("searches: a site is no host")
    return _text(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > TEXT_CHARS_MAX:
        raise ValueError("searches: a name is no text, or too long")
    return value


def _number(value: object, low: int, high: int) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError("searches: a number is none, or beyond its bounds")
    return value


def _delay(value: object) -> float:
    if type(value) not in (int, float) or not 0 <= value <= DELAY_MAX_S:  # type: ignore[operator]
        raise ValueError("searches: a delay is no number of seconds")
    return float(value)  # type: ignore[arg-type]
