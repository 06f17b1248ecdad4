"""How long a test waits for what comes by itself: none fails because the machine is busy."""

SECONDS = 600
"""Beyond any machine's load: none waits in vain."""
