"""Entry point of the ``shoal`` command: dispatch, and every failure one line.

Exit status: 0 ok, 1 the work failed, 2 the request was wrong, 130 interrupted. A base install has
the device's commands, the accountant and the planner; ``shoal agent`` loads no command-line
library. A command loads its own module and no other's: a ``shoal keys`` takes half of the time that
it would take with all of them, and a shuffler holds no accountant.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from shoal import __version__
from shoal.errors import USAGE, Kind, ShoalError

INTERRUPTED = 130  # exit status
# the disk's own reasons, no bug of ours
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

# Commands and groups, in the order of the help, and the module of shoal.cli that registers each.
PARTS = {
    "demo": "demo.command",
    "trial": "trial.command",
    "keys": "keys.command",
    "task": "task.command",
    "shuffler": "services.shuffler",
    "analyzer": "services.analyzer",
    "results": "results.command",
    "console": "console.command",
    "epsilon": "epsilon.command",
    "load": "load.command",
    "audit": "audit.command",
    "plan": "plan.command",
    "discover": "discover.command",
    "tables": "plan.tables.command",
    "places": "plan.places.command",
    "doctor": "operations.doctor",
    "backup": "operations.backup",
    "restore": "operations.restore",
    "verify": "verify",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises but SystemExit from argument parsing."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Our matrices are small: a second BLAS thread only waits, at full CPU. Set before numpy is
    # loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        if arguments[:1] == ["agent"]:
            from shoal.cli.agent.light import import_asyncio

            import_asyncio()
            from shoal.cli.agent.command import main as agent

            return agent(arguments[1:])
        status = _run(arguments)
        if sys.stdout is not None:  # as it is where the caller closed it
            sys.stdout.flush()  # here, where a full disk or a closed pipe is still an answer
        return status
    except ShoalError as error:
        return fail(error)
    except (KeyboardInterrupt, EOFError):
        print("shoal: interrupted", file=sys.stderr)  # noqa: T201 - the command line's own output
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return 1
    except ModuleNotFoundError as error:
        from shoal.cli.extras import extra_of, missing

        extra = extra_of(error)
        return _bug(error) if extra is None else fail(missing(extra))
    except Exception as error:  # noqa: BLE001 - one line for everything; SHOAL_DEBUG has the trace
        if isinstance(error, OSError) and error.errno in _FULL:
            _drop_output()
            return fail(
                ShoalError(
                    Kind.OVERLOADED,
                    f"cannot write: {error.strerror}: make room there, or write elsewhere",
                )
            )
        return _bug(error)


def _bug(error: Exception) -> int:
    if os.environ.get("SHOAL_DEBUG"):
        raise error
    return fail(
        ShoalError(
            Kind.INTERNAL,
            f"unexpected {type(error).__name__}: a bug; run again with SHOAL_DEBUG=1 and report "
            "the trace",
        )
    )


def _drop_output() -> None:
    """What is still to be written goes nowhere: the interpreter would complain of it once more at
    its end.
    """
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: ShoalError) -> int:
    """Print the one line; return the exit status of its kind."""
    print(f"shoal: {error}", file=sys.stderr)  # noqa: T201 - the command line's own output
    return 2 if error.kind in USAGE else 1


def _run(arguments: list[str]) -> int:
    import typer
    from typer.exceptions import TyperException

    command = typer.main.get_command(build(parts_for(arguments)))
    try:
        result = command.main(args=arguments, prog_name="shoal", standalone_mode=False)
    except typer.Exit as stop:
        return stop.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except TyperException as error:
        # without arguments: help was the answer
        return fail(_usage(error)) if error.format_message() else 2
    if result == INTERRUPTED:  # what typer makes of Ctrl-C
        raise KeyboardInterrupt
    return result if isinstance(result, int) else 0


def _usage(error: Any) -> ShoalError:
    """A wrong command line in one line, which says where help is."""
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "shoal"
    text = error.format_message().strip().rstrip(".?")
    return ShoalError(Kind.CONFIG, f"{text[0].lower()}{text[1:]}: see {where} --help")


def parts_for(arguments: Sequence[str]) -> tuple[str, ...]:
    """The command that comes first; none for the version; all of them for the help of the
    whole and for a name that there is not.
    """
    if arguments[:1] == ["--version"]:
        return ()
    return tuple(arguments[:1]) if arguments[:1] and arguments[0] in PARTS else tuple(PARTS)


def build(parts: Sequence[str] = tuple(PARTS)) -> Any:
    """The typer application with these groups of commands."""
    import typer

    app = typer.Typer(
        name="shoal",
        no_args_is_help=True,
        context_settings={"help_option_names": ["--help", "-h"]},
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        help="Statistics from fleets of devices in the shuffle model of differential privacy, with "
        "a certified central epsilon.\n\n"
        "Begin with `shoal demo`: the whole pipeline on this machine, on real survey answers.",
    )

    def version(value: bool) -> None:
        if value:
            print(f"shoal {__version__}")  # noqa: T201 - the command line's own output
            raise typer.Exit

    @app.callback()
    def root(
        _: bool = typer.Option(
            False, "--version", callback=version, is_eager=True, help="Print the version and exit."
        ),
    ) -> None:
        pass

    for part in parts:
        importlib.import_module(f"shoal.cli.{PARTS[part]}").register(app)
    app.command("agent", help="The device's side (its own options: `shoal agent --help`).")(
        lambda: None
    )
    return app


if __name__ == "__main__":
    sys.exit(main())
