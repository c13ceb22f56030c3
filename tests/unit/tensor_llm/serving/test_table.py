import torch

from tensor_llm.serving.table import BlockTable


def test_only_what_is_new_is_written_and_the_later_of_two_counts():
    table = BlockTable(3, 5, torch.device("cpu"))
    place = table.table_SX.data_ptr()
    table.write([(0, 0, [7, 8]), (2, 0, [1, 2, 3, 4, 5]), (0, 2, [9])])
    table.write([])
    table.write([(2, 0, [6, 6]), (2, 1, [3])])
    assert table.table_SX.tolist() == [[7, 8, 9, 0, 0], [0] * 5, [6, 3, 3, 4, 5]]
    assert table.table_SX.data_ptr() == place
