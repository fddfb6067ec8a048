"""A small cloud for tests: a server that outlives its callers, and the platform package that talks to it.

The platform is brought in as anybody's would be, through ``MOORAGE_PLATFORMS="filecloud=tests.crash.filecloud"``. The
server allows two things of one name, pages its lists, lags behind itself and fails when told to, so that a careless
installer is caught.
"""
