"""``python -m almac``."""

from almac.cli.main import main

main()
