"""Tables: the default recipe (`recipe`), and the estimators that follow scikit-learn's contract (`estimators`).

Nothing is imported here: the recipe needs no scikit-learn.
"""
