from benchmark.leaderboard.board import write_board

__all__ = ["write_board"]
