"""The root image: built once, the same userland on every layer.

It is identified by the digest of all its files, which are checked before root runs any of them. A build leaves nothing
but the image.
"""
