"""Binary Star: a pair of nodes of which one serves (``specs/binary-star.md``)."""
