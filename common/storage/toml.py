"""Reading a TOML file, for services, devices and tasks alike: standard library only, every mistake
one line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.errors import Kind, ShoalError
from shoal.limits import LIMITS

_HINT = "a text stands in quotation marks, a number as 2.0, yes or no as true or false"
_LONGEST_KEY = 64  # characters; what is longer was not meant as a key


def read_toml(path: Path) -> dict[str, Any]:
    """Raises CONFIG naming the file and, for a syntax error, the line."""
    try:
        with path.open("rb") as file:
            data = file.read(LIMITS.config_bytes + 1)
        if len(data) > LIMITS.config_bytes:
            raise ShoalError(Kind.CONFIG, f"{path.name}: larger than {LIMITS.config_bytes} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise ShoalError(
            Kind.CONFIG, f"cannot read {path}: {error.strerror or 'unreadable'}"
        ) from None
    except UnicodeDecodeError:
        raise ShoalError(Kind.CONFIG, f"{path.name}: no text in UTF-8, as a TOML file is") from None
    except tomllib.TOMLDecodeError as error:
        hint = _HINT if "Invalid value" in str(error) else "mend that line, or give a TOML file"
        raise ShoalError(Kind.CONFIG, f"{path.name}: {error}: {hint}") from None
    except RecursionError:
        raise ShoalError(Kind.CONFIG, f"{path.name}: nested too deeply") from None


def no_such_key(key: str, known: Iterable[str]) -> str:
    """What to say of a key that nobody knows: with the one that was probably meant, where there is
    one like it.
    """
    from difflib import get_close_matches  # only who has mistyped loads it

    close = get_close_matches(key[:_LONGEST_KEY], sorted(known), n=1, cutoff=0.6)
    meant = f' (did you mean "{close[0]}"?)' if close else ""
    return f"no such key: remove it or mend its name{meant}"
