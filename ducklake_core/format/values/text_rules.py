"""Letters, spaces and digits as DuckDB's text functions define them."""

from __future__ import annotations

BLANKS = " \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
"""The characters that ``trim`` removes: the spaces of Unicode (category Zs), no other white space."""
