"""A reader of public channels: peerage used the way an application would use it.

`recorded` and `upstream` play the far side (a site with channel previews), `reader` and `render` are
the application's own work, `app` is where caching is said, and `load` is the fleet under load.
"""
