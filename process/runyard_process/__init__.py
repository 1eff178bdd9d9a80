"""What every service's process does the same way: read its settings, write its logs."""
