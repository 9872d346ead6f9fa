"""Guests of the user's, as their configuration describes them: libvirt's XML, Proxmox VE's file, QEMU's command line.

A configuration is read and translated; nothing here runs a guest, or changes one.
"""
