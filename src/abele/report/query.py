"""SQL over a report: DuckDB reads the columns where they are.

The report may come from a stranger, and the query be anything. The database has no access to files, to the network, to
extensions, to the program's variables or to its own settings; memory, threads, time and the size of an answer are
bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from abele.errors import MissingPackageError, QueryError, nearest
from abele.report.schema import TABLES
from abele.report.table import Table
from abele.report.text_column import Column, Text
from abele.words import counted, shortened

if TYPE_CHECKING:
    from abele.report.report import Report


# Tables that queries may name: those of a report, each with the numbers of its rows, and bytes on tiles.
#
# Columns are the report's own arrays, which the database reads in place. A text column becomes an array of pointers to
# its distinct words: no string is made for a row.

Columns = Mapping[str, Column]
ROW = "id"
"""Name of the column with the number of a row in its table: columns of other tables refer to it."""
_SQL_TYPES = {"<i4": "INTEGER", "<i8": "BIGINT", "<f8": "DOUBLE", "|b1": "BOOLEAN", "text": "VARCHAR"}


def table_columns(report: Report) -> dict[str, tuple[str, ...]]:
    """Names of the columns that each table has in queries."""
    found = {name: (ROW, *schema.columns) for name, schema in TABLES.items()}
    return found | {"memory": tuple(_memory_names(report)), "target": ("name", "value")}


def columns_of(report: Report, table: str) -> dict[str, npt.NDArray[Any]]:
    """The columns of a table as arrays that the database reads.

    Args:
        report: The report.
        table: One of :func:`table_columns`.
    """
    special: dict[str, Callable[[Report], dict[str, Column]]] = {"memory": _memory, "target": _target}
    if table in special:
        found = special[table](report)
    else:
        held = getattr(report, table)
        found = {
            ROW: np.arange(len(held), dtype=np.int32),
            **{name: held.columns[name] for name in TABLES[table].columns},
        }
    return {
        name: _strings(column) if isinstance(column, Text) else np.asarray(column) for name, column in found.items()
    }


def empty_table_sql(report: Report, table: str) -> str:
    """The statement that makes a table without rows: arrays of none have no type of text."""
    types = {ROW: "INTEGER"}
    types |= {name: _SQL_TYPES[spec.dtype] for name, spec in (TABLES[table].columns if table in TABLES else {}).items()}
    names = table_columns(report)[table]
    other = "VARCHAR" if table == "target" else "BIGINT"
    return f"CREATE TABLE {table} (" + ", ".join(f"{quoted(name)} {types.get(name, other)}" for name in names) + ")"


def quoted(name: str) -> str:
    """A name as SQL takes any."""
    return '"' + name.replace('"', '""') + '"'


def _strings(column: Text) -> npt.NDArray[Any]:
    """The strings of a text column: an array of n objects, of which equal ones are one."""
    words = column.words
    if not all(word.isascii() for word in words):
        # Halves of surrogate pairs, which a file may hold, are no text to a database.
        words = tuple(word.encode("utf-8", "replace").decode("utf-8") for word in words)
    return Text(column.codes, words).decode()


def _memory_names(report: Report) -> dict[str, int]:
    """Names of the columns of ``memory``, and which category each is, -1 for none.

    Categories come from a file: those that a database would take for another column are told apart by a number.
    """
    names = {"tile": -1, "total_bytes": -1}
    taken = {name.casefold() for name in names}
    for place, category in enumerate(report.memory.categories):
        name = category or "category"
        while name.casefold() in taken:
            name = f"{name}_{place}"
        taken.add(name.casefold())
        names[name] = place
    return names


def _memory(report: Report) -> dict[str, Column]:
    """Bytes on each tile, category by category."""
    memory = report.memory
    found: dict[str, Column] = {"tile": np.arange(memory.num_tiles, dtype=np.int32), "total_bytes": memory.by_tile}
    return found | {name: memory.bytes[at] for name, at in _memory_names(report).items() if at >= 0}


def _target(report: Report) -> dict[str, Column]:
    """The figures of the machine as text."""
    names = [str(name) for name in report.target]
    return {"name": Text.of(names), "value": Text.of([str(report.target[name]) for name in report.target])}


# Errors of queries, in words that name the tables and columns.

_NO_TABLE = re.compile(r"Table with name (.+?) does not exist!")
_NO_COLUMN = (
    re.compile(r'Referenced column "(.+?)" not found'),
    re.compile(r'does not have a column named "(.+?)"'),
    re.compile(r'Column "(.+?)" does not exist'),
)
_LINE = re.compile(r"^(LINE \d+: )(.*)\n(.*\^)", re.MULTILINE)
_KEYWORDS = ("group",)
"""Columns of reports whose names are words of SQL."""
_LONGEST = 300


def missing_table(text: str) -> str | None:
    """The table that an error of the database says it does not have."""
    found = _NO_TABLE.search(text)
    return found[1] if found else None


def _missing_column(text: str) -> str | None:
    """The column that an error of the database says it does not have."""
    found = next(filter(None, (pattern.search(text) for pattern in _NO_COLUMN)), None)
    return found[1] if found else None


def query_error(text: str, query: str, columns: Mapping[str, tuple[str, ...]]) -> QueryError:
    """Error for a query from an error of the database.

    Args:
        text: Message of the database.
        query: The query.
        columns: The columns of each table that there is.
    """
    message = text.partition("\n")[0].partition(": ")[2] or text
    return QueryError(
        shortened(message.rstrip("!"), _LONGEST),
        at=_place(text, query),
        remedy=_remedy(text, query, columns),
    )


def _place(text: str, query: str) -> str | None:
    """The line of the query that is wrong, and below it where."""
    found = _LINE.search(text)
    # The database may speak of what was put around the query, or of a part of a long line.
    if found is not None and found[2].strip(" .") in query:
        return f"{found[2]}\n{found[3][len(found[1]) :]}"
    name = missing_table(text) or _missing_column(text)
    for line in query.splitlines() if name else ():
        if at := re.search(rf"\b{re.escape(name or '')}\b", line, re.IGNORECASE):
            first = max(at.start() - _LONGEST // 4, 0)
            return f"{line[first : first + _LONGEST // 2]}\n{' ' * (at.start() - first)}{'^' * len(at[0])}"
    return None


def _remedy(text: str, query: str, columns: Mapping[str, tuple[str, ...]]) -> str | None:
    table = missing_table(text)
    if table is not None:
        close = nearest(table, columns)
        return f"did you mean {close}?" if close else "the tables are " + ", ".join(columns)
    if (column := _missing_column(text)) is not None:
        return _column_remedy(column, query, columns)
    if text.startswith("Permission Error"):
        return "a query reads the tables of the report alone"
    if text.startswith("Parser Error"):
        for word in _KEYWORDS:
            # A column of that name stands before a comma or FROM, behind a dot, or in brackets.
            if re.search(rf"[\s.,(]{word}(\s*[,)]|\s+from\b)|\.{word}\b", query, re.IGNORECASE):
                return f'a column that is called like a word of SQL has quotes: "{word}"'
    return None


def _column_remedy(name: str, query: str, columns: Mapping[str, tuple[str, ...]]) -> str:
    """Column of the query's tables that was probably meant, or the columns of these."""
    words = {word.casefold() for word in re.findall(r"\w+", query)}
    named = {table: names for table, names in columns.items() if table in words} or columns
    every = [each for names in named.values() for each in names]
    close = nearest(name, every)
    if close is not None:
        return f"did you mean {close}?"
    return "\n".join(f"{table} has {', '.join(names)}" for table, names in named.items())


MEMORY_BYTES = 1 << 30
"""Memory that a query and its answer may take, the columns of the report aside."""
THREADS = 2
SECONDS = 60.0
"""Time that a query may take."""
MOST_ROWS = 5_000_000
"""Rows of an answer."""
_ASKS_CATALOG = re.compile(r"\bshow\b|information_schema|\bduckdb_|\bpg_|\bsqlite_|\bpragma_", re.IGNORECASE)
_SETTINGS = re.compile(r"^(\s*(?:describe|desc|summarize)\s+)variables\b", re.IGNORECASE)
"""Statements that the database would take for a question about its own variables."""
_ANSWER = "abele answer"
_INTERRUPT_SECONDS = 0.05
_LIMITS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
}
_NUMBERS = {"BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
_NUMBERS |= {"FLOAT", "DOUBLE"}
_AS_INTEGER = {"HUGEINT", "UHUGEINT", "BIGNUM"}


def query(
    report: Report,
    text: str,
    *,
    seconds: float = SECONDS,
    memory_bytes: int = MEMORY_BYTES,
    threads: int = THREADS,
) -> Table:
    """The answer to a query.

    Args:
        report: The report.
        text: One ``SELECT`` statement of DuckDB's SQL (or ``FROM``, ``WITH``, ``SHOW``, ``DESCRIBE``, ``SUMMARIZE``,
            ``EXPLAIN``); its tables are those of :func:`~abele.report.query.table_columns`.
        seconds: Time that it may take.
        memory_bytes: Memory that it and its answer may take.
        threads: Threads that carry it out.

    Returns:
        A table. Integers, numbers and truth values are arrays of their type; sums of integers are int64. Anything else
        is text. Where a row has no value, a column of numbers with a point has NaN, and any other is one of objects
        with None.

    Raises:
        QueryError: It is no such statement, names what there is not, takes too long or too much memory, or its answer
            has more than ``MOST_ROWS`` rows.
        MissingPackageError: DuckDB is not installed.
        KeyboardInterrupt: The user stopped it.
    """
    duckdb = _duckdb()
    names = table_columns(report)
    limits = _LIMITS | {"memory_limit": f"{memory_bytes // 1000}KB", "threads": str(max(threads, 1))}
    with duckdb.connect(":memory:", config=limits) as connection:
        # Not among the settings before: the database would refuse these then.
        connection.execute("SET lock_configuration = true")
        database = _Database(duckdb, connection, report)
        try:
            statement = _statement(duckdb, connection, text)
            _add_tables(database, text)
            return _within(connection, seconds, lambda: database.answer(statement))
        except TimeoutError as error:
            raise QueryError(
                f"the query took more than {seconds:g} s", remedy="ask less at once, or give it more seconds"
            ) from error
        except duckdb.OutOfMemoryException as error:
            raise QueryError(
                f"the query needs more than {memory_bytes:,} B of memory", remedy="ask less at once: where, limit"
            ) from error
        except duckdb.Error as error:
            raise query_error(str(error), text, names) from error


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingPackageError("queries in SQL need DuckDB", remedy="pip install 'abele[sql]'") from error
    return duckdb


class _Database:
    """Database with the tables of a report that were used so far."""

    def __init__(self, duckdb: Any, connection: Any, report: Report) -> None:
        self._duckdb = duckdb
        self._connection = connection
        self.report = report
        self.there: set[str] = set()

    def add(self, table: str, *, with_rows: bool = True) -> None:
        """Let queries name a table."""
        if table in self.there:
            return
        self.there.add(table)
        columns = columns_of(self.report, table) if with_rows else {}
        if columns and len(next(iter(columns.values()))):
            self._connection.register(table, columns)
        else:
            self._connection.execute(empty_table_sql(self.report, table))

    def answer(self, statement: Any) -> Table:
        """Answer to a statement; tables named in ways that only the database sees are added on the way."""
        while True:
            try:
                return self._answer(statement)
            except self._duckdb.CatalogException as error:
                table = (missing_table(str(error)) or "").casefold()
                if table not in table_columns(self.report) or table in self.there:
                    raise
                self.add(table)

    def _answer(self, statement: Any) -> Table:
        relation = self._connection.sql(statement.query)
        if relation is None:
            return Table({})
        names = _distinct(relation.columns)
        kept = ", ".join(f"{_cast(k, str(t))} AS c{k}" for k, t in enumerate(relation.types))
        if _ASKS_CATALOG.search(statement.query):
            # Small, and the table of the answer is none of those that there are.
            return _table(names, relation.project(kept).fetchnumpy())
        # The answer lies in the database first, whose memory is bounded.
        relation.project(kept).create(_ANSWER)
        (rows,) = self._connection.execute(f"SELECT count(*) FROM {quoted(_ANSWER)}").fetchone()
        if rows > MOST_ROWS:
            raise QueryError(
                f"the answer has {counted(rows, 'row')}, more than {MOST_ROWS:,}", remedy="sums and counts, or a limit"
            )
        return _table(names, self._connection.execute(f"SELECT * FROM {quoted(_ANSWER)}").fetchnumpy())


def _table(names: list[str], found: dict[str, Any]) -> Table:
    return Table(dict(zip(names, map(_plain, found.values()), strict=True)))


def _statement(duckdb: Any, connection: Any, text: str) -> Any:
    """The one statement that a text is."""
    found = connection.extract_statements(_SETTINGS.sub(r"\1main.variables", text))
    if len(found) != 1:
        raise QueryError(
            "the query is empty" if not found else f"{len(found)} statements in one query",
            remedy='one statement, as in "select name, bytes from variables order by bytes desc limit 10"',
        )
    kinds = duckdb.StatementType
    if found[0].type not in (kinds.SELECT, kinds.EXPLAIN):
        raise QueryError(
            f"a report is only read, and this is a statement of another kind: {str(found[0].type).rpartition('.')[2]}",
            remedy="select, from, with, show tables, describe, summarize or explain",
        )
    return found[0]


def _add_tables(database: _Database, text: str) -> None:
    """Add the tables that a query may name: reading the columns of others would take time for nothing."""
    plain = text.casefold()
    for table in table_columns(database.report):
        if table in plain:
            database.add(table)
    if _ASKS_CATALOG.search(text):
        for table in table_columns(database.report):
            database.add(table, with_rows=False)


def _within(connection: Any, seconds: float, answer: Callable[[], Table]) -> Table:
    """Answer, from a thread of its own: while it works the database reacts neither to the clock nor to the user.

    Raises:
        TimeoutError: It took longer.
        KeyboardInterrupt: The user stopped it.
    """
    with ThreadPoolExecutor(1, "query") as pool:
        found = pool.submit(answer)
        try:
            return found.result(seconds)
        finally:
            # Again and again: an interrupt between two statements is lost.
            while not found.done():
                connection.interrupt()
                wait([found], _INTERRUPT_SECONDS)


def _cast(place: int, kind: str) -> str:
    """A column of an answer as a type that NumPy has."""
    if kind in _NUMBERS or kind == "VARCHAR":
        return f"#{place + 1}"
    if kind in _AS_INTEGER:
        return f"CAST(#{place + 1} AS BIGINT)"
    return f"CAST(#{place + 1} AS {'DOUBLE' if kind.startswith('DECIMAL') else 'VARCHAR'})"


def _distinct(names: list[str]) -> list[str]:
    """Names of columns, a number behind those that are there already."""
    taken: dict[str, None] = {}
    for name in names:
        count, each = 1, name
        while each in taken:
            count += 1
            each = f"{name}_{count}"
        taken[each] = None
    return list(taken)


def _plain(column: Any) -> npt.NDArray[Any]:
    """A column of an answer without a mask."""
    if not isinstance(column, np.ma.MaskedArray):
        return np.asarray(column)
    values, absent = np.asarray(column.data), np.ma.getmaskarray(column)
    if values.dtype.kind == "f":
        return np.where(absent, np.nan, values)
    found = values.astype(object)
    found[absent] = None
    return found
