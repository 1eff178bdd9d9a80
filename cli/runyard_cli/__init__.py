"""The command line: `runyard dev` and its companions."""
