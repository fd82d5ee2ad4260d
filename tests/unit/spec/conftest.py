from hypothesis import settings

# A loaded machine is slow, which is no fault of an example.
settings.register_profile("spec", deadline=None)
settings.load_profile("spec")
