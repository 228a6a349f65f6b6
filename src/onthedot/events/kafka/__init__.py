"""Kafka as the bus. Only this package imports aiokafka."""

from importlib.util import find_spec

from onthedot.errors import StoreRefused

if find_spec("aiokafka") is None:
    raise StoreRefused("kafka:// needs the package aiokafka: pip install 'onthedot[kafka]'")

from onthedot.events.kafka.bus import KafkaBus

__all__ = ["KafkaBus"]
