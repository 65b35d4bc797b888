"""The words of the project: the names that a client, a service and a judge use alike.

Everything may import these modules. They import the standard library alone, so that the judge's processes load no part
of the client by them.
"""
