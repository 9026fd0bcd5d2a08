"""What runs on hosts: programs of the standard library and Monarch that import nothing of ours.

They are started by path, so no module here may be called as one of the standard library.
"""
