"""Row D: a delayed message queue. A topic is a source, a message a task, the dead letters are the failed ones."""

from onthedot.mq.config import MQConfig
from onthedot.mq.queue import MessageQueue, RedisMessageQueue

__all__ = ["MQConfig", "MessageQueue", "RedisMessageQueue"]
