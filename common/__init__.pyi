# What type checkers and editors see of ``import shoal``: __init__.py loads it on first use.
from shoal.study import Audited as Audited
from shoal.study import Design as Design
from shoal.study import EstimateTable as EstimateTable
from shoal.study import Picture as Picture
from shoal.study import Planned as Planned
from shoal.study import Promise as Promise
from shoal.study import ReleaseTable as ReleaseTable
from shoal.study import Reports as Reports
from shoal.study import Simulated as Simulated
from shoal.study import SyntheticTable as SyntheticTable
from shoal.study import Table as Table
from shoal.study import TotalsArray as TotalsArray
from shoal.study import Update as Update
from shoal.study import VectorDesign as VectorDesign
from shoal.study import VectorMean as VectorMean
from shoal.study import VectorPromise as VectorPromise
from shoal.study import clip_update as clip_update
from shoal.study import design as design
from shoal.study import design_vector as design_vector
from shoal.study import plan as plan
from shoal.study import read_release as read_release
from shoal.study import send_update as send_update

__version__: str
