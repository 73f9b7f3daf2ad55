"""The console script, and `python -m dhtcrawl`: heeds Ctrl-C while the command is imported, a tenth of a second."""

import os
import signal
from types import FrameType

INTERRUPTED = 11  # `Exit.INTERRUPTED`, whose module is not imported yet


def main() -> None:
    """Run the command line of this process, and exit as it says."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else who started this process has it ignored
        # In the middle of an import Python would print where it was.
        signal.signal(signal.SIGINT, _end)
    from dhtcrawl.cli.main import main as run_command

    run_command()


def _end(_number: int, _frame: FrameType | None) -> None:
    try:
        os.write(2, b"dhtcrawl: interrupted\n")
    finally:
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
