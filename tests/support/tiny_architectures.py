"""config.json of the architectures whose caches differ, at two to four layers: what tiny_models builds besides its own.

Windows are short, and chunks and windows are no multiples of each other, so that a conversation of a few hundred tokens
is past each of them.
"""

from __future__ import annotations

from typing import Any

VOCAB = 1024

_COMMON = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCAB,
    "max_position_embeddings": 8192,
    "rope_theta": 1e4,
}

CONFIGS: dict[str, dict[str, Any]] = {
    "qwen3_next": {
        **_COMMON,
        "num_hidden_layers": 2,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 1,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 16,
        "mlp_only_layers": [],
        "moe_intermediate_size": 16,
        "partial_rotary_factor": 0.5,
        "norm_topk_prob": True,
        "full_attention_interval": 2,
    },
    "lfm2": {
        **_COMMON,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "norm_eps": 1e-6,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": 64,
        "block_ff_dim": 48,
        "block_multiple_of": 16,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "full_attn_idxs": [1],
    },
    "falcon_h1": {
        **_COMMON,
        "num_hidden_layers": 2,
        "mamba_d_conv": 4,
        "mamba_d_head": 16,
        "mamba_d_ssm": 32,
        "mamba_d_state": 16,
        "mamba_n_groups": 1,
        "mamba_n_heads": 2,
    },
    "llama4": {
        "text_config": {
            **_COMMON,
            "model_type": "llama4_text",
            "attention_bias": False,
            "attention_chunk_size": 192,
            "interleave_moe_layer_step": 2,
            "intermediate_size_mlp": 48,
            "num_hidden_layers": 4,
            "num_experts_per_tok": 1,
            "num_local_experts": 2,
            "rope_scaling": None,
            "use_qk_norm": True,
        }
    },
    "deepseek_v32": {
        **_COMMON,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "index_head_dim": 32,
        "index_n_heads": 2,
        "index_topk": 64,
        "moe_intermediate_size": 16,
        "n_shared_experts": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "routed_scaling_factor": 1.0,
        "kv_lora_rank": 32,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 32,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        "first_k_dense_replace": 1,
    },
    "baichuan_m1": {
        **_COMMON,
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "sliding_window": 128,
        "sliding_window_layers": [0, 2],
        "conv_window": 2,
        "num_swa_attention_heads": 2,
        "num_swa_key_value_heads": 2,
    },
    "recurrent_gemma": {
        **_COMMON,
        "num_hidden_layers": 3,
        "hidden_size": 64,
        "intermediate_size": 96,
        "attention_bias": False,
        "conv1d_width": 4,
        "logits_soft_cap": 30.0,
        "attention_window_size": 128,
        "block_types": ["recurrent", "recurrent", "attention"],
    },
    "smollm3": {**_COMMON, "num_hidden_layers": 3, "no_rope_layer_interval": 3, "tie_word_embeddings": True},
    "mamba2": {
        **_COMMON,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 16,
        "state_size": 16,
        "intermediate_size": 64,
        "layer_norm_epsilon": 1e-6,
        "conv_kernel": 4,
        "n_groups": 1,
        "use_bias": False,
        "use_conv_bias": True,
        "tie_word_embeddings": True,
        "time_step_limit": [0.0, 100.0],
        "time_step_rank": "auto",
    },
}

VISION_TEXT: dict[str, dict[str, Any]] = {
    "gemma3": {
        **_COMMON,
        "model_type": "gemma3_text",
        "num_hidden_layers": 2,
        "query_pre_attn_scalar": 16,
        "sliding_window": 128,
        "sliding_window_pattern": 2,
    },
    "gemma3n": {
        **_COMMON,
        "model_type": "gemma3n_text",
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "vocab_size_per_layer_input": VOCAB,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "activation_sparsity_pattern": [0.0] * 4,
        "hidden_size_per_layer_input": 16,
        "altup_num_inputs": 2,
        "altup_coef_clip": 120.0,
        "laurel_rank": 8,
        "intermediate_size": [48] * 4,
    },
}
"""The text_config of mlx-vlm's models: their language part runs alone."""
