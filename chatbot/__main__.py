"""The program: `chatbot`, or `python -m chatbot`. Ctrl-C ends it also while it loads."""

import sys

_INTERRUPTED = 130


def run() -> int:
    """Run the command line and return its exit code."""
    try:
        from chatbot.cli.main import main, prepare_process

        prepare_process()
        code = main(sys.argv[1:])
    except KeyboardInterrupt:  # before there is a loop
        code = _INTERRUPTED
    if code == _INTERRUPTED and sys.stderr is not None and sys.stderr.isatty():
        print(file=sys.stderr)  # noqa: T201 - the next prompt of the shell begins a line
    return code


if __name__ == "__main__":
    sys.exit(run())
