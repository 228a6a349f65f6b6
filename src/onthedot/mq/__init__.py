"""A delayed message queue: a topic is a source, a message a task, a dead letter a failed task."""

from onthedot.mq.config import MQConfig
from onthedot.mq.queue import MessageQueue, RedisMessageQueue

__all__ = ["MQConfig", "MessageQueue", "RedisMessageQueue"]
