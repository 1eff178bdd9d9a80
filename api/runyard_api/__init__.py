"""The contract all parts of Runyard share: resources, names, rules, events, tokens, errors. Pure: no I/O, no clock."""
