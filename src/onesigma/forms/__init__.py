"""Forms of a fitted network that carry no value from op to op; moments are ``conversion``'s."""
