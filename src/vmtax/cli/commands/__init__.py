"""The commands as the command line has them: parameters and help, without what they do, which `later` imports."""
