"""Windows, behind an OpenSSH server or its guest agent: command lines, encodings, files, and an end of what is ours.

Tried with Wine's cmd.exe behind a real sshd and qemu-ga; never run on Windows itself. PowerShell was never run at all.
"""
