"""How vmtax behaves as a program on the system on which it was started.

It finds its directories, writes only files that no other user can redirect, starts programs only from paths that no
other user can change, and prints text literally. Nothing here depends on what vmtax measures.
"""
