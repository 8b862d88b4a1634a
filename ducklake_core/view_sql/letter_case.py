"""``upper`` and ``lower`` letter by letter, as DuckDB has them; Java's may give several letters for one, or look at the next one."""

from __future__ import annotations

import sys

from ducklake_core.view_sql.casts import string_text

_CAPITALS, _SMALL = "\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}\N{GREEK CAPITAL LETTER SIGMA}", "i\N{GREEK SMALL LETTER SIGMA}"
_LONGEST_REPEATED = 200


def lower_sql(text: str) -> str:
    """A text in lower case. Java gives a dot of its own for the dotted capital I, and another sigma at the end of a word."""
    return f"lower(translate({text}, {string_text(_CAPITALS)}, {string_text(_SMALL)}))"


def upper_sql(text: str) -> str:
    """A text in upper case; those with letters that Java makes several of are taken apart."""
    if len(text) > _LONGEST_REPEATED:
        # Calls within calls must not make the query grow without bounds.
        return f"element_at(transform(array({text}), whole -> {_upper('whole')}), 1)"
    return _upper(text)


def _upper(text: str) -> str:
    letters = _letters_of_several()
    known, capitals = string_text("".join(letters)), string_text("".join(letters.values()))
    letter = f"CASE WHEN instr({known}, letter) > 0 THEN translate(letter, {known}, {capitals}) ELSE upper(letter) END"
    apart = f"array_join(transform(split({text}, ''), letter -> {letter}), '')"
    return f"CASE WHEN char_length(upper({text})) <> char_length({text}) THEN {apart} ELSE upper({text}) END"


def _letters_of_several() -> dict[str, str]:
    """Letters whose capital form is several letters, with the one that DuckDB has: a capital of one letter, or the letter itself.

    >>> [_letters_of_several()[letter] for letter in "ßᾳŉ"]
    ['ẞ', 'ᾼ', 'ŉ']
    """
    letters = (chr(code) for code in range(sys.maxunicode) if not 0xD800 <= code < 0xE000)
    several = [letter for letter in letters if len(letter.upper()) > 1]
    return {letter: letter.title() if len(letter.title()) == 1 else letter for letter in several} | {"ß": "ẞ"}
