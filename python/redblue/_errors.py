"""What redblue raises. Each message names what was wrong, its value, and what would work."""


class Error(Exception):
    """Base of all errors of redblue."""


class InvalidProblem(Error, ValueError):
    """Sizes, options or arrays that make no sense or do not fit each other."""


class Unsupported(Error, NotImplementedError):
    """A request that redblue cannot meet."""


class CapacityError(Error, ValueError):
    """Fast memory is too small for every schedule that may be chosen."""


class NotEnoughMemory(Error, MemoryError):
    """A run takes more bytes beside its arrays than it may, or than the machine has."""


class FileError(Error, OSError):
    """A file could not be read or written."""
