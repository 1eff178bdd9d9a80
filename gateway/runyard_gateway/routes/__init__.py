"""The routes, one file per subject: each reads a request, calls what does the work, and answers."""
