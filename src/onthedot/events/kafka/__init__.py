"""Kafka as the bus. Only this package imports aiokafka."""

from onthedot.errors import StoreRefused

try:
    from onthedot.events.kafka.bus import KafkaBus
except ModuleNotFoundError as error:
    if error.name != "aiokafka":
        raise
    raise StoreRefused("kafka:// needs the package aiokafka: pip install 'onthedot[kafka]'") from None

__all__ = ["KafkaBus"]
