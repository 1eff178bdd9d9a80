"""The contract every part of Runyard shares: resources, names, rules, events, tokens, errors. Pure: no I/O, no clock."""
