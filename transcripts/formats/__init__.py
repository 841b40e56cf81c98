"""Transcript formats, one module each, behind one interface (`base.Format`); `registry` has them in order."""
