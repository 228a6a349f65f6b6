"""Values to JSON and back: typed where a signature has annotations, tagged where it has none."""

from onthedot.codec.body import Caps as Caps
