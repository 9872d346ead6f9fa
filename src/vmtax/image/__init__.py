"""The root image: built once, the same userland on every layer.

It is known by the digest of all its files, and its files are checked before root runs any of them. Building leaves
nothing but the image.
"""
