"""The bytes on disk, both directions; README.md beside this file describes them one by one."""
