"""One run's hold on a host: the ways to it and to guests, its owner, what was examined, its power."""
